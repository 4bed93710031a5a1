"""Pictures: jobs that are alike are drawn together, step by step, while others wait for their turn."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing

from infra.metrics import Metrics
from schemas.errors import TriptychError
from schemas.jobs import DecodeJob
from schemas.media import DecoderKind, ImageOptions
from workers.decode_step import Going, Product, Step
from workers.decoder import CannotDecode, Drawn, PictureEngine, Stopped
from workers.media import write

# How long the first job of a batch waits for company.
GATHER_S = 0.02
SUFFIXES = {"png": "png", "jpeg": "jpg", "webp": "webp"}


class Sitting:
    """A job on its way through the easel: what becomes of it arrives in `news`."""

    def __init__(self, job: DecodeJob, options: ImageOptions) -> None:
        self.job = job
        self.options = options
        self.given_up = False
        self.news: asyncio.Queue[Going | Drawn | CannotDecode | Exception] = asyncio.Queue()

    @property
    def likeness(self) -> tuple[str, int, int, int]:
        """Only jobs that have this in common can share a batch."""
        return (self.job.decoder, self.options.steps, self.options.width, self.options.height)


def choose(waiting: Sequence[Sitting], most: Mapping[str, int]) -> list[Sitting]:
    """The next batch: the most urgent job, the oldest of those, and the oldest of its like; `most` by decoder."""
    first = min(waiting, key=lambda one: one.job.head.priority)
    like = [one for one in waiting if one.likeness == first.likeness and one is not first]
    return [first, *like[: most[first.job.decoder] - 1]]


class Easel:
    """One batch at a time, on the executor's one thread; `run` it in the process's task group."""

    def __init__(self, engines: Mapping[str, PictureEngine], thread: Executor, metrics: Metrics) -> None:
        self._engines = engines
        self._most = {decoder: engine.batch for decoder, engine in engines.items()}
        self._thread = thread
        self._metrics = metrics
        self._waiting: list[Sitting] = []
        self._arrived = asyncio.Event()

    async def draw(self, job: DecodeJob, options: ImageOptions) -> AsyncGenerator[Going | Drawn]:
        """How far it is, then the picture. Closing it gives the job up: it will not begin, or be left out of what
        becomes of its batch, which itself stops when all its jobs are given up.

        Raises:
            CannotDecode, and whatever the engine fails with.
        """
        sitting = Sitting(job, options)
        self._waiting.append(sitting)
        self._arrived.set()
        try:
            while True:
                news = await sitting.news.get()
                if isinstance(news, Exception):
                    raise news
                yield news
                if isinstance(news, Drawn):
                    return
        finally:
            sitting.given_up = True
            if sitting in self._waiting:
                self._waiting.remove(sitting)

    async def run(self) -> None:
        """Draw for ever."""
        while True:
            self._arrived.clear()
            if not self._waiting:
                await self._arrived.wait()
                await asyncio.sleep(GATHER_S)
                continue
            batch = choose(self._waiting, self._most)
            self._waiting = [one for one in self._waiting if one not in batch]
            await self._draw(batch)

    async def _draw(self, batch: list[Sitting]) -> None:
        loop = asyncio.get_running_loop()
        engine, jobs = self._engines[batch[0].job.decoder], [one.job for one in batch]

        def tell(done: int, total: int) -> None:
            for one in batch:
                one.news.put_nowait(Going(done, total))

        def report(done: int, total: int) -> None:
            loop.call_soon_threadsafe(tell, done, total)

        def stopped() -> bool:
            return all(one.given_up for one in batch)

        self._metrics.decode_batch(len(batch))
        try:
            drawn = await loop.run_in_executor(self._thread, engine.draw, jobs, report, stopped)
        except Stopped:
            return  # nobody is left to be told
        except Exception as error:  # noqa: BLE001 - raised again in the task of each job, which logs it and fails
            for one in batch:
                one.news.put_nowait(error)
            return
        for one, result in zip(batch, drawn, strict=True):
            one.news.put_nowait(result)


class PictureMaker:
    """Implements decode_step.Maker."""

    kind: DecoderKind = "image"

    def __init__(self, engines: Mapping[str, PictureEngine], easel: Easel) -> None:
        self._engines = engines
        self._easel = easel
        # One batch under way, one ready.
        self.slots = 2 * max((engine.batch for engine in engines.values()), default=1)

    async def make(self, job: DecodeJob, skip: int) -> AsyncGenerator[Step]:
        if skip:
            return
        if job.decoder not in self._engines:
            raise TriptychError("model_not_found", f"no decoder {job.decoder!r} is served here", param="model")
        if not isinstance(job.options, ImageOptions):
            raise TriptychError("invalid_request", "a picture is asked for with options of speech")
        async with aclosing(self._easel.draw(job, job.options)) as steps:
            try:
                async for step in steps:
                    yield step if isinstance(step, Going) else await _product(step, job.options)
            except CannotDecode as error:
                raise TriptychError("decoder_failed", str(error)) from error


async def _product(drawn: Drawn, options: ImageOptions) -> Product:
    """In the size that was asked for, whatever the engine draws in."""
    data, media_type = await asyncio.to_thread(write.picture, drawn.rgb, options)
    return Product(data, media_type, SUFFIXES[options.format], width=options.width, height=options.height)
