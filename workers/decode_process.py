"""A decoder process: pictures, or speech, for all served models that have a decoder of that kind."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra import manifests
from infra.settings import Settings
from schemas.jobs import DecodeJob
from schemas.manifest import Manifest
from schemas.media import DecoderKind
from topics import names
from topics.checks import Belongs
from topics.opener import Opener
from topics.pools import GroupPool, Pool
from workers.decode_attempt import DecodeAttempts
from workers.decode_image import Easel, PictureMaker
from workers.decode_speech import SpeechMaker
from workers.decode_step import Maker
from workers.decode_work import DecodeWork
from workers.decoder import PictureEngine, SpeechEngine
from workers.engines import media_catalog
from workers.engines.sim_decoder import SimPainter, SimSpeaker
from workers.options import DecodeOptions
from workers.outbox import Outbox
from workers.pool_process import Surroundings
from workers.pool_process import serve as serve_pool

log = logging.getLogger(__name__)

# Jobs that wait here beside those that run: where a cancellation finds them, and where those wait that another worker
# still runs.
WAITING = 16


class DecodeTrade:
    """Implements pool_process.Trade."""

    def __init__(self, around: Surroundings, options: DecodeOptions) -> None:
        settings = around.settings
        self._around = around
        self._kind = options.kind
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"decode-{options.kind}")
        self._outbox = Outbox(around.results)
        served = _with_decoder(settings, options.kind)
        self.models = list(dict.fromkeys(one.pool for one in served))
        self._easel: Easel | None = None
        self._engines: dict[str, PictureEngine] | dict[str, SpeechEngine]
        maker: Maker
        if options.kind == "image":
            painters = {f"{one.id}/image": _painter(one, options, Path(settings.model_dir)) for one in served}
            self._engines = painters
            self._easel = Easel(painters, self._thread, around.metrics)
            maker = PictureMaker(painters, self._easel)
        else:
            speakers = {f"{one.id}/audio": _speaker(one, options, Path(settings.model_dir)) for one in served}
            self._engines = speakers
            maker = SpeechMaker(speakers, self._thread, around.metrics)
        self._work = self._work_of(maker)
        self.topic = names.decode(options.kind)
        belongs = Belongs(DecodeJob, self.models, options.kind)
        opener = Opener(belongs, around.blobs, around.letters, around.clock)
        self._pool = GroupPool(settings.kafka, self.topic, opener, self._work, maker.slots + WAITING, around.clock)

    @property
    def pool(self) -> Pool:
        return self._pool

    async def load(self, report: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        for decoder, engine in self._engines.items():
            report(f"loading {decoder}")
            await loop.run_in_executor(self._thread, engine.load, report)

    async def beside(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run())
            if self._easel is not None:
                group.create_task(self._easel.run())

    def cancel(self, request_id: str, reason: str) -> None:
        self._work.cancel(request_id, reason)

    def drain(self) -> None:
        self._work.drain()

    def cut_short(self) -> None:
        self._work.cut_short()

    async def close(self) -> None:
        """What the thread is at ends with its step, or its sentence; nobody waits for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _work_of(self, maker: Maker) -> DecodeWork:
        around = self._around
        attempts = DecodeAttempts(
            maker,
            around.lives,
            around.results,
            around.blobs,
            self._outbox,
            around.metrics,
            around.clock,
            around.settings.max_attempts,
        )
        return DecodeWork(attempts, around.results, maker.slots)


def _with_decoder(settings: Settings, kind: DecoderKind) -> list[Manifest]:
    found = [one for one in manifests.served(settings).values() if kind in one.decoders]
    if not found:
        raise media_catalog.NoSuchEngine(f"none of the served models has a decoder for {kind}")
    return found


def _painter(manifest: Manifest, options: DecodeOptions, model_dir: Path) -> PictureEngine:
    if options.engine == "sim":
        return SimPainter(step_s=options.step_s)
    return media_catalog.picture(manifest, model_dir)


def _speaker(manifest: Manifest, options: DecodeOptions, model_dir: Path) -> SpeechEngine:
    if options.engine == "sim":
        return SimSpeaker(manifest.decoders["audio"].voices, sentence_s=options.step_s)
    return media_catalog.speech(manifest, model_dir)


async def serve(settings: Settings, options: DecodeOptions) -> int:
    """Run one decoder until it is told to stop; returns the exit code.

    Raises:
        NoSuchEngine: no served model has such a decoder, or one has an engine that is not known.
        Unavailable, Missing: as PoolProcess.run.
    """
    around = Surroundings(settings)
    return await serve_pool(around, DecodeTrade(around, options))
