"""`POST /v1/audio/speech`: one decode job, and its sound as the body of the answer.

pcm is sent sentence by sentence, while later sentences are still being spoken. The other formats are containers or
codecs with a state of their own, whose pieces do not add up to one file: they are sent when they are complete.
"""

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Message, Receive, Send

from gateway import capabilities, decode, errors
from gateway.answer import STREAM_HEADERS, Stream, answering, next_of, send_error
from gateway.delivery import Delivery
from gateway.desk import Caller, Desk, Exchange, Timeouts
from gateway.errors import Headers
from gateway.models import Served
from gateway.reply import error_line
from gateway.sse import event_of
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed, Finished, Made, Terminal
from schemas.media import AudioFormat, SpeechOptions
from schemas.openai_audio import SPEECH_UNSUPPORTED, SpeechDelta, SpeechDone, SpeechRequest
from topics import names, plan
from topics.bus import Producer

_FORMATS: Mapping[str, tuple[AudioFormat, bytes]] = {
    "mp3": ("mp3", b"audio/mpeg"),
    "opus": ("opus", b"audio/ogg"),
    "aac": ("aac", b"audio/aac"),
    "flac": ("flac", b"audio/flac"),
    "wav": ("wav", b"audio/wav"),
    "pcm": ("pcm16", b"audio/pcm"),
}
_decoder = msgspec.json.Decoder(SpeechRequest)


class Speech:
    """Everything speech needs; one per gateway."""

    def __init__(self, desk: Desk, delivery: Delivery, producer: Producer) -> None:
        self.desk = desk
        self.delivery = delivery
        self.producer = producer

    async def answer(self, request: SpeechRequest, caller: Caller, receive: Receive, send: Send) -> None:
        """As Chat.answer."""
        served = self.desk.models.get(request.model)
        options = _checked(request, served)
        exchange = _SpeechExchange(self, served, request.input, options, caller)
        media_type = _FORMATS[request.response_format or "mp3"][1]
        told = _Sse() if request.stream_format == "sse" else _Raw(media_type)
        exchange.answer = SpokenAnswer(send, self.delivery, told, exchange.first_told)
        await self.desk.attend(exchange, receive)


def _checked(request: SpeechRequest, served: Served) -> SpeechOptions:
    """Raises TriptychError: a 400."""
    capabilities.refuse(request, SPEECH_UNSUPPORTED)
    capabilities.need(served.manifest, "speech_out", "model")
    voice = capabilities.voice_of(served.manifest, request.voice_name, "voice")
    audio_format = _FORMATS[request.response_format or "mp3"][0]
    return SpeechOptions(voice, audio_format, request.speed or 1.0, chunked=audio_format == "pcm16")


class _SpeechExchange(Exchange):
    def __init__(self, speech: Speech, served: Served, text: str, options: SpeechOptions, caller: Caller) -> None:
        super().__init__(speech.desk, served, caller, "speech", options.chunked)
        self._producer = speech.producer
        self._job = plan.speech(self.head, served.manifest, text, options)

    async def work(self, stream: Stream) -> None:
        self.sent = True
        self.needs.ask_for_all(names.decode("audio"))
        key = self.head.request_id.encode()
        await self._producer.send(names.decode("audio"), self._job, key=key, headers=self.caller.headers)
        await self.answer.pass_on(stream)


class _Raw:
    """The sound itself."""

    def __init__(self, media_type: bytes) -> None:
        self.headers: Headers = [(b"content-type", media_type)]
        self.last = b""

    def piece(self, data: bytes) -> bytes:
        return data

    def error(self, error: TriptychError) -> bytes | None:
        return None  # no place for words in the middle of a sound


class _Sse:
    """The sound in events."""

    headers = STREAM_HEADERS

    def __init__(self) -> None:
        self.last = event_of(SpeechDone())

    def piece(self, data: bytes) -> bytes:
        return event_of(SpeechDelta(base64.b64encode(data).decode()))

    def error(self, error: TriptychError) -> bytes | None:
        return error_line(error)


class SpokenAnswer:
    """answer.Answer: the status line waits for the first sound, so that a failure before it has its real status.

    A failure after it, where there is no place for words, breaks the connection off: the body has no end then.
    """

    def __init__(self, send: Send, delivery: Delivery, told: _Raw | _Sse, on_first: Callable[[], None]) -> None:
        self.last: Terminal | None = None
        self._send = send
        self._delivery = delivery
        self._told = told
        self._on_first = on_first
        self._begun = False
        self._broken = False  # a send was broken off, or the body has ended

    async def pass_on(self, stream: Stream) -> None:
        while self.last is None:
            match await next_of(stream):
                case Made() as made:
                    await self._write(self._told.piece(await self._delivery.data(made.ref)))
                case Failed() | Cancelled() as lost:
                    self.last = lost
                    raise errors.from_event(lost)
                case Finished() as finished:
                    self.last = finished
                case _:
                    pass
        if not self._begun:
            raise TriptychError("decoder_failed", "The decoder has made no sound.")
        await self._put({"type": "http.response.body", "body": self._told.last, "more_body": False})
        self._broken = True

    async def fail(self, error: TriptychError) -> None:
        if not self._begun:
            await send_error(self._send, error)
        elif (words := self._told.error(error)) is not None:
            await self._put({"type": "http.response.body", "body": words, "more_body": False})

    async def _write(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._on_first()
            await self._put({"type": "http.response.start", "status": 200, "headers": list(self._told.headers)})
        await self._put({"type": "http.response.body", "body": data, "more_body": True})

    async def _put(self, message: Message) -> None:
        if not self._broken:
            self._broken = True
            await self._send(message)
            self._broken = False


def routes(speech: Speech, timeouts: Timeouts) -> list[HTTPRouteHandler]:
    @post("/v1/audio/speech")
    async def create(request: Request[Any, Any, Any]) -> ASGIApp:
        asked = decode.json_body(await request.body(), request.headers.get("content-type", ""), _decoder)
        caller = timeouts.caller(request)
        return answering(partial(speech.answer, asked, caller))

    return [create]
