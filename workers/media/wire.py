"""What a worker and its decoding processes say to each other over a pair of pipes.

A process may have been taken over by what it decodes, so the worker takes from it what can be the answer to what it
asked, and no more bytes than that can have.
"""

import struct
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar, assert_never

import msgspec
import numpy as np
from msgspec import Meta

from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from workers.encoder import Clip, Decoded, MediaFault, Picture, Sound
from workers.media.confine import Confinement
from workers.media.frame import PIXELS
from workers.media.sound import RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Ask(msgspec.Struct, frozen=True):
    """Followed by `size` bytes of media."""

    kind: MediaKind
    pool: EncoderKind
    limits: MediaLimits
    limit_s: float
    size: int


_FaultCode = Literal["media_too_large", "media_too_long", "media_unreadable", "media_type_unsupported"]
_MESSAGE_CHARACTERS = 1_000  # it becomes a part of an HTTP answer and of an event
_TRACE_CHARACTERS = 8_000
_MESSAGE_BYTES = 1 << 20  # without the media, pixels or samples that follow it


class Faulty(msgspec.Struct, frozen=True, tag=True):
    code: _FaultCode
    message: Annotated[str, Meta(max_length=_MESSAGE_CHARACTERS)]


class Sounding(msgspec.Struct, frozen=True, tag=True):
    """Followed by that many samples."""

    samples: Annotated[int, Meta(ge=0)]


_Side = Annotated[int, Meta(ge=1)]


class Shown(msgspec.Struct, frozen=True, tag=True):
    """Followed by pictures of these heights and widths; `at_s` is there for a clip."""

    sizes: Annotated[list[tuple[_Side, _Side]], Meta(min_length=1)]
    at_s: list[Annotated[float, Meta(ge=0)]] | None = None


class Raised(msgspec.Struct, frozen=True, tag=True):
    """A mistake of ours, or the end of the memory in an odd place; the process ends."""

    traceback: Annotated[str, Meta(max_length=_TRACE_CHARACTERS)]


class Nonsense(Exception):
    """No answer to what was asked."""


class Broken(Exception):
    """The process has ended on an exception. Says which, in printable ASCII."""


_LENGTH = struct.Struct("<I")
_ASKS = msgspec.msgpack.Decoder(Ask)
_READY: "msgspec.msgpack.Decoder[Confinement | Raised]" = msgspec.msgpack.Decoder(Confinement | Raised)
_ANSWERS = msgspec.msgpack.Decoder(Faulty | Sounding | Shown | Raised)


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


def send_ready(pipe: Writable, confinement: Confinement) -> None:
    """The first thing that a process says."""
    _send(pipe, confinement)


def receive_ready(pipe: Readable) -> Confinement:
    """
    Raises:
        EOFError: the other side is gone.
        Nonsense
        Broken
    """
    ready = _decoded(_READY, _message(pipe))
    if isinstance(ready, Raised):
        raise Broken(ascii(ready.traceback))
    return ready


def send_raised(pipe: Writable, traceback: str) -> None:
    """The last thing that a process says."""
    _send(pipe, Raised(traceback[-_TRACE_CHARACTERS:]))


def send_answer(pipe: Writable, decoded: Decoded | MediaFault) -> None:
    match decoded:
        case MediaFault():
            _send(pipe, msgspec.convert(decoded, Faulty, from_attributes=True))
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


def receive_answer(pipe: Readable, ask: Ask) -> Decoded:
    """
    Raises:
        EOFError: the other side is gone.
        MediaFault
        Nonsense
        Broken
    """
    answer = _decoded(_ANSWERS, _message(pipe))
    match answer:
        case Faulty():
            raise MediaFault(answer.code, answer.message)
        case Raised():
            raise Broken(ascii(answer.traceback))
        case Sounding():
            _check(ask.pool == "audio" and answer.samples <= _most_samples(ask.limits))
            return Sound(np.frombuffer(_read(pipe, 4 * answer.samples), np.float32))
        case Shown():
            _check(ask.pool == "vision" and _can_show(answer, ask))
            pictures = [Picture(_rgb(pipe, height, width)) for height, width in answer.sizes]
            return pictures[0] if answer.at_s is None else Clip(pictures, answer.at_s)
        case _:
            assert_never(answer)


def _most_samples(limits: MediaLimits) -> float:
    """Lengths are rounded on the way: by less than a second."""
    return RATE * (max(limits.audio_s, limits.video_s) + 1)


def _can_show(answer: Shown, ask: Ask) -> bool:
    largest = max(height * width for height, width in answer.sizes)
    if ask.kind == "image":
        return answer.at_s is None and len(answer.sizes) == 1 and largest <= ask.limits.image_pixels
    times = 0 if answer.at_s is None else len(answer.at_s)
    # Twice: sides are rounded, which makes much of a frame that is hardly higher than a line.
    return times == len(answer.sizes) <= ask.limits.video_frames and largest <= 2 * PIXELS


def _check(is_possible: bool) -> None:
    if not is_possible:
        raise Nonsense("it gave what cannot be the answer")


def _rgb(pipe: Readable, height: int, width: int) -> "NDArray[np.uint8]":
    return np.frombuffer(_read(pipe, height * width * 3), np.uint8).reshape(height, width, 3)


def _send(pipe: Writable, message: msgspec.Struct) -> None:
    body = msgspec.msgpack.encode(message)
    _write(pipe, memoryview(_LENGTH.pack(len(body)) + body))


def _message(pipe: Readable) -> bytearray:
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    if length > _MESSAGE_BYTES:
        raise Nonsense("it promised a message that is too long")
    return _read(pipe, length)


_T = TypeVar("_T")


def _decoded(decoder: "msgspec.msgpack.Decoder[_T]", body: bytearray) -> _T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Nonsense("it gave what is no answer") from error


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
