"""`POST /v1/audio/transcriptions`: one encode job without a draft, and what it heard as the answer."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Send

from gateway import capabilities, decode, errors, form, subtitles
from gateway.answer import Answer, Stream, Streamed, Whole, answering
from gateway.delivery import Told
from gateway.desk import Caller, Desk, Exchange, Timeouts
from gateway.errors import unsupported
from gateway.files import FORM_OVERHEAD_BYTES
from gateway.media import Media, slot_of
from gateway.models import Served
from gateway.reply import error_line
from gateway.sse import event_of
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed, Finished, Transcript, Usage
from schemas.jobs import EncodeJob
from schemas.openai_audio import TRANSCRIPTION_UNSUPPORTED, TranscriptDelta, TranscriptDone, TranscriptionRequest
from schemas.refs import BlobRef
from topics import names
from topics.intake.faults import MediaFault, too_large
from topics.intake.intake import Taken
from topics.intake.sniff import MediaType, check_kind
from topics.intake.uploads import Uploads

FILE = "file"

_FORMS: Mapping[str, tuple[bytes, Callable[[Transcript], bytes]]] = {
    "json": (b"application/json", subtitles.as_json),
    "verbose_json": (b"application/json", subtitles.as_verbose_json),
    "text": (b"text/plain; charset=utf-8", subtitles.as_text),
    "srt": (b"application/x-subrip; charset=utf-8", subtitles.as_srt),
    "vtt": (b"text/vtt; charset=utf-8", subtitles.as_vtt),
}


class Transcriptions:
    """Everything transcriptions need; one per gateway."""

    def __init__(self, desk: Desk, media: Media, uploads: Uploads) -> None:
        self.desk = desk
        self.media = media
        self.uploads = uploads

    async def receive(self, request: Request[Any, Any, Any]) -> tuple[TranscriptionRequest, BlobRef]:
        """The form, with its sound in the store. Raises TriptychError: a 400, or rate_limited."""
        content_type = request.headers.get("content-type", "")
        async with self.uploads.receiving(), aclosing(request.stream()) as body:
            sent = await form.read(body, content_type, self.uploads.store)
        asked = decode.texts(form.values(sent), TranscriptionRequest)
        if not sent.files:
            raise TriptychError("missing_parameter", f"Missing required parameter: '{FILE}'.", param=FILE)
        return asked, sent.files[0].blob

    async def answer(
        self, request: TranscriptionRequest, sound: BlobRef, caller: Caller, receive: Receive, send: Send
    ) -> None:
        """As Chat.answer."""
        served = self.desk.models.get(request.model)
        _check(request, sound, served)
        exchange = _Transcribing(self, served, request, sound, caller)
        exchange.answer = _answer(exchange, request, send)
        await self.desk.attend(exchange, receive)


def _check(request: TranscriptionRequest, sound: BlobRef, served: Served) -> None:
    """Raises TriptychError: a 400."""
    capabilities.need(served.manifest, "transcription", "model")
    capabilities.refuse(request, TRANSCRIPTION_UNSUPPORTED)
    if request.temperature:
        raise unsupported("temperature", "only 0 is possible")
    if "word" in (request.timestamp_granularities or ()):
        raise unsupported("timestamp_granularities", "only 'segment' is possible")
    if request.timestamp_granularities and request.response_format != "verbose_json":
        raise unsupported("timestamp_granularities", "it goes with the response_format 'verbose_json'")
    if request.stream and request.response_format not in (None, "json", "text"):
        raise unsupported("stream", f"'{request.response_format}' does not stream")
    try:
        check_kind(MediaType(sound.media_type), "audio")
        if sound.size_bytes > served.manifest.media.item_bytes:
            raise too_large(served.manifest.media.item_bytes)
    except MediaFault as fault:
        raise fault.at(FILE) from fault


class _Transcribing(Exchange):
    def __init__(
        self, asking: Transcriptions, served: Served, request: TranscriptionRequest, sound: BlobRef, caller: Caller
    ) -> None:
        super().__init__(asking.desk, served, caller, "transcription", bool(request.stream))
        self._media = asking.media
        language = request.language or ""
        slot = slot_of(served, Taken("audio", sound, FILE), "audio", language=language)
        self._job = EncodeJob(self.head, [slot], 0, language=language)

    async def work(self, stream: Stream) -> None:
        self.sent = True
        self.needs.ask_for_all(names.encode("audio"))
        await self._media.send([self._job], self.caller.headers)
        await self.answer.pass_on(stream)


def _answer(exchange: Exchange, request: TranscriptionRequest, send: Send) -> Answer:
    if request.stream:
        return Streamed(send, HeardChunks(), exchange.first_told)
    media_type, write = _FORMS[request.response_format or "json"]
    return Whole(send, HeardBody(write), exchange.first_told, exchange.route_of, media_type)


class HeardBody:
    """answer.Collector: what was heard, in one of OpenAI's forms."""

    def __init__(self, write: Callable[[Transcript], bytes]) -> None:
        self._write = write
        self._heard: Transcript | None = None

    def add(self, events: Iterable[Told]) -> None:
        for event in events:
            if isinstance(event, Transcript):
                self._heard = event

    def encode(self, usage: Usage) -> bytes:
        if self._heard is None:
            raise TriptychError("internal", "The encoder has told nothing of what it heard.")
        return self._write(self._heard)


class HeardChunks:
    """answer.Encoder: what was heard, as OpenAI streams it."""

    def __init__(self) -> None:
        self._text = ""

    def encode(self, events: Iterable[Told]) -> bytes:
        return b"".join(self._lines(event) for event in events)

    def _lines(self, event: Told) -> bytes:
        match event:
            case Transcript():
                self._text = event.text
                return b"".join(event_of(TranscriptDelta(one)) for one in subtitles.deltas(event))
            case Finished():
                return event_of(TranscriptDone(self._text))
            case Failed() | Cancelled():
                return error_line(errors.from_event(event))
            case _:
                return b""


def routes(asking: Transcriptions, timeouts: Timeouts) -> list[HTTPRouteHandler]:
    @post("/v1/audio/transcriptions", request_max_body_size=asking.uploads.limits.most_bytes + FORM_OVERHEAD_BYTES)
    async def create(request: Request[Any, Any, Any]) -> ASGIApp:
        caller = timeouts.of(request)
        asked, sound = await asking.receive(request)
        return answering(partial(asking.answer, asked, sound, caller))

    return [create]
