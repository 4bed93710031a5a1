"""A decoder on memory twins: everything real but the broker, Redis, the object store and the model."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from infra.alive import MemoryLives
from infra.clock import SystemClock
from infra.memory import MemoryHub, MemoryResults
from infra.memory_blobs import MemoryBlobs
from infra.metrics import Metrics
from schemas.events import Cancelled, Event, Failed, Finished, Made
from schemas.jobs import DecodeJob, Head
from schemas.media import ImageOptions, SpeechOptions
from workers.decode_attempt import DecodeAttempts
from workers.decode_image import Easel, PictureMaker
from workers.decode_speech import SpeechMaker
from workers.decode_step import Maker
from workers.decode_work import DecodeWork
from workers.decoder import PictureEngine, SpeechEngine
from workers.outbox import Outbox

MODEL = "m"
PICTURE, SPEECH = "served/image", "served/audio"


def head(request_id: str, *, lives_s: float = 60.0, parent: str = "", priority: int = 0) -> Head:
    now = SystemClock().now()
    return Head(
        request_id,
        MODEL,
        deadline_at=now + lives_s,
        created_at=now,
        reply_to="gw",
        streamed=True,
        parent=parent,
        priority=priority,
    )


def picture(one: Head, *codes: int, steps: int = 4, decoder: str = PICTURE, size: int = 16) -> DecodeJob:
    options = ImageOptions(width=size, height=size, steps=steps, seed=1)
    return DecodeJob(one, decoder, options, codes=list(codes) or [1, 2])


def speech(one: Head, text: str, **options: object) -> DecodeJob:
    return DecodeJob(one, SPEECH, msgspec.convert(options, SpeechOptions), text=text)


def check_whole(events: list[Event]) -> None:
    """Seqs without gaps, one terminal event, at the end."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    ends = [event for event in events if isinstance(event, (Finished, Failed, Cancelled))]
    assert ends == [events[-1]]


class Decoder:
    """One life of a decoder over a hub and a store that it may share with others."""

    def __init__(
        self,
        *,
        painter: PictureEngine | None = None,
        speaker: SpeechEngine | None = None,
        hub: MemoryHub | None = None,
        blobs: MemoryBlobs | None = None,
        name: str = "w",
    ) -> None:
        self.hub = hub or MemoryHub()
        self.blobs = blobs or MemoryBlobs()
        self.results = MemoryResults(self.hub)
        self.lives = MemoryLives(self.hub, name)
        self.metrics = Metrics()
        self.outbox = Outbox(self.results)
        self._thread = ThreadPoolExecutor(1)
        self._easel: Easel | None = None
        maker: Maker
        if painter is not None:
            self._easel = Easel({PICTURE: painter}, self._thread, self.metrics)
            maker = PictureMaker({PICTURE: painter}, self._easel)
        else:
            assert speaker is not None
            maker = SpeechMaker({SPEECH: speaker}, self._thread, self.metrics)
        attempts = DecodeAttempts(
            maker, self.lives, self.results, self.blobs, self.outbox, self.metrics, SystemClock(), max_attempts=3
        )
        self.work = DecodeWork(attempts, self.results, maker.slots)
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def events(self, request_id: str) -> list[Event]:
        return [event for batch in self.hub.request(MODEL, request_id).stream for event in batch.events]

    def made(self, request_id: str) -> list[Made]:
        return [event for event in self.events(request_id) if isinstance(event, Made)]

    async def data(self, made: Made) -> bytes:
        return await self.blobs.get(made.ref)

    def put(self, job: DecodeJob) -> asyncio.Task[None]:
        task = self.tasks[job.head.request_id] = asyncio.create_task(self.work.handle(job))
        return task

    async def do(self, job: DecodeJob) -> list[Event]:
        await self.put(job)
        events = self.events(job.head.request_id)
        check_whole(events)
        return events

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Decoder"]:
        """Alive; at the end it is gone without a word, as after kill -9."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self.outbox.run())]
            if self._easel is not None:
                beside.append(group.create_task(self._easel.run()))
            try:
                yield self
            finally:
                with contextlib.suppress(KeyError):
                    del self.hub.alive[(MODEL, (await self.lives.of(MODEL)).worker)]
                for task in [*beside, *self.tasks.values()]:
                    task.cancel()
                await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self._thread.shutdown()
