"""What a worker and its decoding processes say to each other over a pair of pipes."""

import struct
from typing import TYPE_CHECKING, Protocol, assert_never

import msgspec
import numpy as np

from schemas.errors import Code
from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from workers.encoder import Clip, Decoded, MediaFault, Picture, Sound

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Ask(msgspec.Struct, frozen=True):
    """Followed by `size` bytes of media."""

    kind: MediaKind
    pool: EncoderKind
    limits: MediaLimits
    limit_s: float
    size: int


class Faulty(msgspec.Struct, frozen=True, tag=True):
    code: Code
    message: str


class Sounding(msgspec.Struct, frozen=True, tag=True):
    """Followed by that many samples."""

    samples: int


class Shown(msgspec.Struct, frozen=True, tag=True):
    """Followed by pictures of these heights and widths; `at_s` is there for a clip."""

    sizes: list[tuple[int, int]]
    at_s: list[float] | None = None


_LENGTH = struct.Struct("<I")
_ASKS = msgspec.msgpack.Decoder(Ask)
_ANSWERS = msgspec.msgpack.Decoder(Faulty | Sounding | Shown)


class Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Writable(Protocol):
    def write(self, data: memoryview, /) -> int | None: ...


def send_ask(pipe: Writable, ask: Ask, data: bytes) -> None:
    _send(pipe, ask)
    _write(pipe, memoryview(data))


def receive_ask(pipe: Readable) -> tuple[Ask, bytes]:
    """
    Raises:
        EOFError: the other side is gone.
    """
    ask = _ASKS.decode(_message(pipe))
    return ask, bytes(_read(pipe, ask.size))


def send_answer(pipe: Writable, decoded: Decoded | MediaFault) -> None:
    match decoded:
        case MediaFault():
            _send(pipe, Faulty(decoded.code, decoded.message))
        case Sound():
            _send(pipe, Sounding(len(decoded.pcm)))
            _write(pipe, decoded.pcm.data.cast("B"))
        case Picture():
            _send_pictures(pipe, [decoded], None)
        case Clip():
            _send_pictures(pipe, decoded.frames, decoded.at_s)


def _send_pictures(pipe: Writable, pictures: list[Picture], at_s: list[float] | None) -> None:
    _send(pipe, Shown([picture.rgb.shape[:2] for picture in pictures], at_s))
    for picture in pictures:
        _write(pipe, np.ascontiguousarray(picture.rgb).data.cast("B"))


def receive_answer(pipe: Readable) -> Decoded:
    """
    Raises:
        EOFError: the other side is gone.
        MediaFault
    """
    answer = _ANSWERS.decode(_message(pipe))
    match answer:
        case Faulty():
            raise MediaFault(answer.code, answer.message)
        case Sounding():
            return Sound(np.frombuffer(_read(pipe, 4 * answer.samples), np.float32))
        case Shown():
            pictures = [Picture(_rgb(pipe, height, width)) for height, width in answer.sizes]
            return pictures[0] if answer.at_s is None else Clip(pictures, answer.at_s)
        case _:
            assert_never(answer)


def _rgb(pipe: Readable, height: int, width: int) -> "NDArray[np.uint8]":
    return np.frombuffer(_read(pipe, height * width * 3), np.uint8).reshape(height, width, 3)


def _send(pipe: Writable, message: msgspec.Struct) -> None:
    body = msgspec.msgpack.encode(message)
    _write(pipe, memoryview(_LENGTH.pack(len(body)) + body))


def _message(pipe: Readable) -> bytearray:
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    return _read(pipe, length)


def _write(pipe: Writable, left: memoryview) -> None:
    while left:
        left = left[pipe.write(left) or 0 :]


def _read(pipe: Readable, size: int) -> bytearray:
    body = bytearray(size)
    left = memoryview(body)
    while left:
        count = pipe.readinto(left)
        if not count:
            raise EOFError
        left = left[count:]
    return body
