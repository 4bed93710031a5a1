"""A spoken answer on its way to the client: as the file it asked for, in the form it asked for."""

import asyncio
import base64
from collections.abc import Callable
from typing import Protocol

from litestar.types import Send

from gateway import errors
from gateway.answer import STREAM_HEADERS, Stream, StreamedBody, next_of
from gateway.delivery import Delivery
from gateway.errors import Headers
from gateway.reply import error_line
from gateway.sse import event_of
from infra.sound_file import SoundPieces
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed, Finished, Made, Terminal
from schemas.media import AudioFormat
from schemas.openai_audio import SpeechDelta, SpeechDone
from schemas.refs import BlobRef


class Sound(Protocol):
    """Makes one file of what a decoder has made."""

    async def add(self, data: bytes) -> bytes:
        """What of the file is ready now, perhaps nothing."""
        ...

    async def end(self) -> bytes:
        """The rest of it."""
        ...

    async def close(self) -> None: ...


class Untouched:
    """Implements Sound, for what the decoder has made in the format that was asked for."""

    async def add(self, data: bytes) -> bytes:
        return data

    async def end(self) -> bytes:
        return b""

    async def close(self) -> None: ...


class Encoded:
    """Implements Sound, for pcm16: one encoder from the first sentence to the last, whoever speaks them. `turns`
    bounds how many sentences a gateway encodes at a time."""

    def __init__(self, audio_format: AudioFormat, turns: asyncio.Semaphore) -> None:
        self._pieces = SoundPieces(audio_format)
        self._turns = turns

    async def add(self, data: bytes) -> bytes:
        async with self._turns:
            return await asyncio.to_thread(self._pieces.add, data)

    async def end(self) -> bytes:
        async with self._turns:
            return await asyncio.to_thread(self._pieces.end)

    async def close(self) -> None:
        await asyncio.to_thread(self._pieces.close)


class Raw:
    """The sound itself."""

    def __init__(self, media_type: str) -> None:
        self.headers: Headers = [(b"content-type", media_type.encode())]
        self.last = b""

    def piece(self, data: bytes) -> bytes:
        return data

    def error(self, error: TriptychError) -> bytes | None:
        return None  # no place for words in the middle of a sound


class Sse:
    """The sound in events."""

    headers = STREAM_HEADERS

    def __init__(self) -> None:
        self.last = event_of(SpeechDone())

    def piece(self, data: bytes) -> bytes:
        return event_of(SpeechDelta(base64.b64encode(data).decode())) if data else b""

    def error(self, error: TriptychError) -> bytes | None:
        return error_line(error)


class SpokenAnswer:
    """answer.Answer: the status line waits for the first sound, so that a failure before it has its real status.

    A failure after it, where there is no place for words, breaks the connection off: the body has no end then.
    """

    def __init__(
        self, send: Send, delivery: Delivery, told: Raw | Sse, sound: Sound, on_first: Callable[[], None]
    ) -> None:
        self.last: Terminal | None = None
        self._body = StreamedBody(send, told.headers)
        self._delivery = delivery
        self._told = told
        self._sound = sound
        self._on_first = on_first
        self._heard = False
        self._gap = False  # a piece is being passed on, or was broken off on its way: nothing may follow it

    async def pass_on(self, stream: Stream) -> None:
        while self.last is None:
            match await next_of(stream):
                case Made() as made if not self._gap:
                    await self._add(made.ref)
                case Failed() | Cancelled() as lost:
                    self.last = lost
                    raise errors.from_event(lost)
                case Finished() as finished:
                    await self._end(finished)
                case _:
                    pass

    async def fail(self, error: TriptychError) -> None:
        await self._body.fail(error, self._told.error(error))

    async def _add(self, ref: BlobRef) -> None:
        self._gap = True
        data = await self._sound.add(await self._delivery.data(ref))
        self._heard = True
        if data:
            await self._write(self._told.piece(data))
        self._gap = False

    async def _end(self, finished: Finished) -> None:
        """Raises TriptychError: what came before is not all there is."""
        if self._gap:
            raise TriptychError("internal", "A part of the answer was lost on its way.")
        if not self._heard:
            self.last = finished
            raise TriptychError("decoder_failed", "The decoder has made no sound.")
        self._gap = True
        await self._write(self._told.piece(await self._sound.end()) + self._told.last, more=False)
        self.last = finished  # not before: whoever interrupts this has to tell the client of it

    async def _write(self, data: bytes, more: bool = True) -> None:
        if not self._body.begun:
            self._on_first()
        await self._body.write(data, more)
