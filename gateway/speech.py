"""`POST /v1/audio/speech`: one decode job, and its sound as the body of the answer.

pcm, mp3, opus and aac are sent sentence by sentence, while later sentences are still being spoken. wav and flac begin
with the length of the whole, so they are sent when they are complete.
"""

import asyncio
from functools import partial
from typing import Any

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Send

from gateway import capabilities, decode
from gateway.answer import Stream, answering
from gateway.delivery import Delivery
from gateway.desk import Caller, Desk, Exchange, Timeouts
from gateway.models import Served
from gateway.speech_reply import Encoded, Raw, Sound, SpokenAnswer, Sse, Untouched
from infra import sound_file
from schemas.media import AudioFormat, SpeechOptions
from schemas.openai_audio import SPEECH_UNSUPPORTED, SpeechRequest
from topics import names, plan
from topics.bus import Producer

# Sentences being encoded: they share the threads, and the processor, with the prompts of everybody else.
ENCODING_AT_ONCE = 4
_decoder = msgspec.json.Decoder(SpeechRequest)


class Speech:
    """Everything speech needs; one per gateway."""

    def __init__(self, desk: Desk, delivery: Delivery, producer: Producer) -> None:
        self.desk = desk
        self.delivery = delivery
        self.producer = producer
        self._encoding = asyncio.Semaphore(ENCODING_AT_ONCE)

    async def answer(self, request: SpeechRequest, caller: Caller, receive: Receive, send: Send) -> None:
        """As Chat.answer."""
        served = self.desk.models.get(request.model)
        audio_format = _format_of(request)
        options = _checked(request, served, audio_format)
        exchange = _SpeechExchange(self, served, request.input, options, caller)
        told = Sse() if request.stream_format == "sse" else Raw(sound_file.MEDIA_TYPES[audio_format])
        sound: Sound = Untouched() if audio_format == options.format else Encoded(audio_format, self._encoding)
        exchange.answer = SpokenAnswer(send, self.delivery, told, sound, exchange.first_told)
        try:
            await self.desk.attend(exchange, receive)
        finally:
            await sound.close()


def _format_of(request: SpeechRequest) -> AudioFormat:
    asked = request.response_format or "mp3"
    return "pcm16" if asked == "pcm" else asked


def _checked(request: SpeechRequest, served: Served, audio_format: AudioFormat) -> SpeechOptions:
    """What the decoder is asked for: of a format that streams, the samples, sentence by sentence. A decoder that takes
    over from another goes on with the next sentence, and only the gateway has the encoder that heard the one before it.

    Raises:
        TriptychError: a 400.
    """
    capabilities.refuse(request, SPEECH_UNSUPPORTED)
    capabilities.need(served.manifest, "speech_out", "model")
    voice = capabilities.voice_of(served.manifest, request.voice_name, "voice")
    streamed = audio_format in sound_file.STREAMED
    return SpeechOptions(voice, "pcm16" if streamed else audio_format, request.speed or 1.0, chunked=streamed)


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


def routes(speech: Speech, timeouts: Timeouts) -> list[HTTPRouteHandler]:
    @post("/v1/audio/speech")
    async def create(request: Request[Any, Any, Any]) -> ASGIApp:
        asked = decode.json_body(await decode.whole(request), request.headers.get("content-type", ""), _decoder)
        caller = timeouts.of(request)
        return answering(partial(speech.answer, asked, caller))

    return [create]
