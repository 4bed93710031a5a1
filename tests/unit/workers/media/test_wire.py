"""What a worker believes of a decoding process that may have been taken over."""

import struct

import msgspec
import numpy as np
import pytest

from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from workers.encoder import Clip, Decoded, MediaFault, Picture, Sound, frames_of
from workers.media import wire

LIMITS = MediaLimits(image_pixels=100, audio_s=1, video_s=1, video_frames=2)


class Tape:
    """A pipe whose other end has said everything and gone."""

    def __init__(self) -> None:
        self.said = bytearray()

    def write(self, data: memoryview) -> int:
        self.said += data
        return len(data)

    def readinto(self, buffer: memoryview) -> int:
        part = self.said[: len(buffer)]
        buffer[: len(part)] = part
        del self.said[: len(part)]
        return len(part)


def ask(kind: MediaKind, pool: EncoderKind) -> wire.Ask:
    return wire.Ask(kind, pool, LIMITS, 1.0, 0)


IMAGE, VIDEO, SPEECH = ask("image", "vision"), ask("video", "vision"), ask("audio", "audio")
DARK = Picture(np.zeros((10, 10, 3), np.uint8))


def message(**fields: object) -> bytes:
    body = msgspec.msgpack.encode(fields)
    return struct.pack("<I", len(body)) + body


def values(decoded: Decoded) -> list[bytes]:
    return [decoded.pcm.tobytes()] if isinstance(decoded, Sound) else [one.tobytes() for one in frames_of(decoded)]


def shown(*sizes: tuple[int, int], at_s: list[float] | None = None) -> bytes:
    return message(type="Shown", sizes=sizes, at_s=at_s)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (IMAGE, struct.pack("<I", 0x7FFF_FFFF)),
        (IMAGE, b"\x03\0\0\0\xc1\xc1\xc1"),
        (IMAGE, message(type="Ask")),
        (IMAGE, message(type="Sounding", samples=1)),
        (SPEECH, shown((1, 1))),
        (SPEECH, message(type="Sounding", samples=-1)),
        (SPEECH, message(type="Sounding", samples=32_001)),
        (IMAGE, shown()),
        (IMAGE, shown((10, 11))),
        (IMAGE, shown((-10, -10))),
        (IMAGE, shown((0, 10))),
        (IMAGE, shown((10, 10), (10, 10))),
        (IMAGE, shown((10, 10), at_s=[0.0])),
        (VIDEO, shown((10, 10))),
        (VIDEO, shown((10, 10), at_s=[])),
        (VIDEO, shown((10, 10), at_s=[-1.0])),
        (VIDEO, shown((10, 10), at_s=[float("nan")])),
        (VIDEO, shown((4_000, 4_000), at_s=[0.0])),
        (VIDEO, shown(*[(10, 10)] * 3, at_s=[0.0] * 3)),
        (IMAGE, message(type="Faulty", code="internal", message="x")),
        (IMAGE, message(type="Faulty", code="media_unreadable", message="x" * 1_001)),
        (IMAGE, message(type="Raised", traceback="x" * 8_001)),
    ],
)
def test_what_cannot_be_the_answer_is_not_taken_for_it(asked: wire.Ask, said: bytes) -> None:
    tape = Tape()
    tape.said += said + bytes(1_000)
    with pytest.raises(wire.Nonsense):
        wire.receive_answer(tape, asked)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (IMAGE, DARK),
        (SPEECH, Sound(np.linspace(-1, 1, 32_000, dtype=np.float32))),
        (ask("video", "audio"), Sound(np.zeros(0, np.float32))),
        (VIDEO, Clip([DARK, Picture(np.ones((20, 2, 3), np.uint8))], [0.0, 0.5])),
    ],
)
def test_an_answer_comes_over_as_it_is(asked: wire.Ask, answer: Picture | Sound | Clip) -> None:
    tape = Tape()
    wire.send_answer(tape, answer)
    got = wire.receive_answer(tape, asked)
    assert type(got) is type(answer) and values(got) == values(answer)
    assert getattr(got, "at_s", None) == getattr(answer, "at_s", None)
    assert not tape.said


def test_a_fault_comes_over_as_it_is() -> None:
    tape = Tape()
    wire.send_answer(tape, MediaFault("media_too_long", "the sound is longer than 1 s"))
    with pytest.raises(MediaFault, match="the sound is longer than 1 s") as caught:
        wire.receive_answer(tape, SPEECH)
    assert caught.value.code == "media_too_long"


def test_an_exception_comes_over_printable() -> None:
    tape = Tape()
    wire.send_raised(tape, "x" * 10_000 + "\nValueError: \x1b[2Jcafé")
    with pytest.raises(wire.Broken, match="ValueError") as caught:
        wire.receive_answer(tape, IMAGE)
    assert str(caught.value).isprintable() and str(caught.value).isascii()
