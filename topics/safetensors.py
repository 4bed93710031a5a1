"""Artifacts as safetensors objects, without a tensor library: whoever only asks what an artifact is needs none.

The format: the length of the header as 8 bytes, little endian; the header, JSON; then the tensors' bytes. The metadata
holds the `Artifact` under the key "triptych"; the one tensor, of embeddings only, is called "rows".
"""

import struct

import msgspec

from infra.faults import Corrupt
from schemas.media import Artifact

_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 8  # readers map the tensors' bytes as they are
MAX_HEADER_BYTES = 16 << 20  # the text of hours of speech
METADATA_KEY = "triptych"
ROWS = "rows"

# numpy's names beside those of the format, and the bytes of one number.
DTYPES = {"float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Header(msgspec.Struct):
    metadata: dict[str, str] = msgspec.field(name="__metadata__")
    rows: _Tensor | msgspec.UnsetType = msgspec.UNSET


_headers = msgspec.json.Decoder(_Header)
_artifacts = msgspec.json.Decoder(Artifact)


def pack(artifact: Artifact, rows: bytes | memoryview = b"") -> bytes:
    """The object's bytes. `rows`: of embeddings, row by row.

    Raises:
        ValueError: these are not as many bytes as the artifact says.
    """
    if len(rows) != _bytes_of(artifact):
        raise ValueError(f"{len(rows)} bytes of rows, not {_bytes_of(artifact)}")
    header = _Header({METADATA_KEY: msgspec.json.encode(artifact).decode()})
    if artifact.kind == "embeddings":
        dtype, _ = DTYPES[artifact.dtype]
        header.rows = _Tensor(dtype, [artifact.rows, artifact.width], (0, len(rows)))
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    return b"".join((_LENGTH.pack(len(encoded)), encoded, rows))


def header_bytes(beginning: bytes) -> int:
    """How many bytes of the object, from its first, the header takes.

    Raises:
        Corrupt: no such object begins like this.
    """
    if len(beginning) < _LENGTH.size:
        raise Corrupt("shorter than the length of its header")
    length: int = _LENGTH.unpack_from(beginning)[0]
    if length > MAX_HEADER_BYTES:
        raise Corrupt(f"a header of {length} bytes")
    return _LENGTH.size + length


def unpack_header(beginning: bytes) -> Artifact:
    """The artifact, of at least the object's header.

    Raises:
        Corrupt: it is cut off, or is no artifact of ours.
    """
    try:
        return _artifacts.decode(_header(beginning).metadata.get(METADATA_KEY, ""))
    except msgspec.DecodeError as error:
        raise Corrupt(f"its header: {error}") from error


def unpack(data: bytes) -> tuple[Artifact, memoryview]:
    """The artifact and the bytes of its rows, of the whole object.

    Raises:
        Corrupt: it is cut off, or is no artifact of ours.
    """
    artifact, rows = unpack_header(data), memoryview(data)[header_bytes(data) :]
    if len(rows) != _bytes_of(artifact):
        raise Corrupt(f"{len(rows)} bytes of rows, not {_bytes_of(artifact)}")
    return artifact, rows


def _header(beginning: bytes) -> _Header:
    end = header_bytes(beginning)
    if len(beginning) < end:
        raise Corrupt(f"cut off in its header of {end} bytes")
    return _headers.decode(beginning[_LENGTH.size : end])


def _bytes_of(artifact: Artifact) -> int:
    if artifact.kind != "embeddings":
        return 0
    if artifact.dtype not in DTYPES:
        raise Corrupt(f"dtype {artifact.dtype!r}; known are {', '.join(DTYPES)}")
    return artifact.rows * artifact.width * DTYPES[artifact.dtype][1]
