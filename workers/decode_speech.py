"""Speech: sentence by sentence, all on one thread; the sentences of several jobs take turns on it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Executor

import numpy as np

from infra.metrics import Metrics
from schemas.errors import TriptychError
from schemas.jobs import DecodeJob
from schemas.media import AudioFormat, DecoderKind, SpeechOptions
from workers.decode_step import Going, Product, Step
from workers.decoder import CannotDecode, SpeechEngine, Spoken
from workers.media import write
from workers.sentences import sentences

# A long text does not keep a short one waiting for longer than a few sentences take.
SLOTS = 4
SUFFIXES = {"wav": "wav", "mp3": "mp3", "flac": "flac", "opus": "opus", "aac": "aac", "pcm16": "pcm"}


class SpeechMaker:
    """Implements decode_step.Maker. One product for each sentence of a chunked job, else one for all."""

    kind: DecoderKind = "audio"
    slots = SLOTS

    def __init__(self, engines: Mapping[str, SpeechEngine], thread: Executor, metrics: Metrics) -> None:
        self._engines = engines
        self._thread = thread
        self._metrics = metrics

    async def make(self, job: DecodeJob, skip: int) -> AsyncGenerator[Step]:
        engine, options, voice = self._check(job)
        pieces = sentences(job.text)
        if not pieces:
            raise _unspeakable(job, "there is nothing to say in the text")
        if skip and not options.chunked:
            return
        whole: list[Spoken] = []
        for number, piece in enumerate(pieces[skip:], start=skip + 1):
            spoken = await self._say(job, engine, piece, voice)
            if options.chunked:
                yield await asyncio.to_thread(_product, spoken, "pcm16", piece)
            else:
                whole += spoken
                yield Going(number, len(pieces))
        if whole:
            yield await asyncio.to_thread(_product, whole, options.format, job.text)

    def _check(self, job: DecodeJob) -> tuple[SpeechEngine, SpeechOptions, str]:
        engine = self._engines.get(job.decoder)
        if engine is None:
            raise TriptychError("model_not_found", f"no decoder {job.decoder!r} is served here", param="model")
        if not isinstance(job.options, SpeechOptions):
            raise TriptychError("invalid_request", "speech is asked for with options of a picture")
        voice = job.options.voice or next(iter(engine.voices), "")
        if voice and voice not in engine.voices:
            known = ", ".join(engine.voices)
            raise TriptychError("invalid_request", f"there is no voice {voice!r}; there are: {known}", param="voice")
        return engine, job.options, voice

    async def _say(self, job: DecodeJob, engine: SpeechEngine, text: str, voice: str) -> list[Spoken]:
        speed = job.options.speed if isinstance(job.options, SpeechOptions) else 1.0

        def say() -> list[Spoken]:
            return list(engine.speak(text, voice, speed))

        try:
            spoken = await asyncio.get_running_loop().run_in_executor(self._thread, say)
        except CannotDecode as error:
            raise _unspeakable(job, str(error)) from error
        if not spoken:
            raise _unspeakable(job, "the decoder said nothing")
        self._metrics.sentence_spoken()
        return spoken


def _product(spoken: list[Spoken], audio_format: AudioFormat, text: str) -> Product:
    pcm, rate = np.concatenate([one.pcm for one in spoken]), spoken[0].sample_rate
    data, media_type = write.sound(pcm, rate, audio_format)
    return Product(data, media_type, SUFFIXES[audio_format], duration_s=len(pcm) / rate, text=text)


def _unspeakable(job: DecodeJob, message: str) -> TriptychError:
    """Whose fault it is: the client's, who sent the text, or the model's, whose answer it is a part of."""
    if job.head.parent:
        return TriptychError("decoder_failed", message)
    return TriptychError("invalid_request", message, param="input")
