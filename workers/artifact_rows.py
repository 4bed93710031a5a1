"""The rows inside an artifact: a safetensors object, read without torch and without a copy of the rows."""

import msgspec

from schemas.media import Artifact

METADATA_KEY = "triptych"
# Bytes per number, and what the dtype is called everywhere else.
_DTYPES = {"F32": (4, "float32"), "F16": (2, "float16"), "BF16": (2, "bfloat16")}


class ArtifactRows(msgspec.Struct, frozen=True):
    """[rows, width] numbers, row by row, little endian. `data` is a part of the object, which it keeps in memory."""

    rows: int
    width: int
    dtype: str
    data: memoryview
    object_bytes: int


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Header(msgspec.Struct, frozen=True, rename={"metadata": "__metadata__"}):
    metadata: dict[str, str] = {}
    rows: _Tensor | None = None


def parse(raw: bytes) -> ArtifactRows:
    """The embeddings of an artifact.

    Raises:
        ValueError: it is none, or none of embeddings, or what it says of its rows is not so.
    """
    body = 8 + int.from_bytes(raw[:8], "little")
    try:
        header = msgspec.json.decode(raw[8:body], type=_Header)
        artifact = msgspec.json.decode(header.metadata.get(METADATA_KEY, ""), type=Artifact)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no artifact: {error}") from error
    if artifact.kind != "embeddings" or header.rows is None:
        raise ValueError(f"an artifact of {artifact.kind} has no rows to put into a prompt")
    if header.rows.shape != [artifact.rows, artifact.width] or header.rows.dtype not in _DTYPES:
        raise ValueError(f"rows of shape {header.rows.shape} and dtype {header.rows.dtype}, against its own metadata")
    item_bytes, dtype = _DTYPES[header.rows.dtype]
    first, end = header.rows.data_offsets
    data = memoryview(raw)[body + first : body + end]
    if len(data) != artifact.rows * artifact.width * item_bytes:
        raise ValueError(f"{len(data)} bytes for {artifact.rows} x {artifact.width} of {dtype}")
    return ArtifactRows(artifact.rows, artifact.width, dtype, data, len(raw))
