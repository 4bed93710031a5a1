import numpy as np
import pytest
from safetensors.numpy import load

from infra.faults import Corrupt
from schemas.media import Artifact, Segment
from topics import safetensors

SPEECH = Artifact("text", "f" * 16, "d" * 64, text="안녕", segments=[Segment(0.0, 1.5, "안녕")], language="ko")


def rows(count: int = 3, width: int = 5) -> tuple[Artifact, bytes]:
    data = np.arange(count * width, dtype=np.float32).tobytes()
    return Artifact("embeddings", "f" * 16, "d" * 64, rows=count, width=width, dtype="float32"), data


def test_other_readers_of_the_format_find_the_rows() -> None:
    artifact, data = rows()
    found = load(safetensors.pack(artifact, data))
    assert found["rows"].tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    assert load(safetensors.pack(SPEECH)) == {}


def test_what_is_packed_is_unpacked() -> None:
    artifact, data = rows()
    found, back = safetensors.unpack(safetensors.pack(artifact, data))
    assert (found, bytes(back)) == (artifact, data)
    assert safetensors.unpack(safetensors.pack(SPEECH))[0] == SPEECH


def test_the_header_alone_is_enough_to_know_the_artifact() -> None:
    artifact, data = rows(100, 100)
    packed = safetensors.pack(artifact, data)
    end = safetensors.header_bytes(packed[:8])
    assert safetensors.unpack_header(packed[:end]) == artifact
    assert (len(packed) - end) == len(data)
    assert end % 8 == 0


def test_equal_artifacts_are_equal_bytes() -> None:
    assert safetensors.pack(*rows()) == safetensors.pack(*rows())


@pytest.mark.parametrize("cut", [0, 7, 8, 20, 200])
def test_what_is_cut_off_is_refused(cut: int) -> None:
    packed = safetensors.pack(*rows())
    with pytest.raises(Corrupt, match=r"bytes|cut off|shorter"):
        safetensors.unpack(packed[:cut] if cut < 200 else packed[:-1])


def test_what_is_no_artifact_is_refused() -> None:
    for raw in (b"\xff" * 16, b"\x02\0\0\0\0\0\0\0{}", b'\x14\0\0\0\0\0\0\0{"__metadata__": {} }'):
        with pytest.raises(Corrupt, match="header"):
            safetensors.unpack(raw)


def test_rows_that_are_not_as_many_as_said_are_refused() -> None:
    artifact, data = rows()
    with pytest.raises(ValueError, match="60"):
        safetensors.pack(artifact, data[:-4])
