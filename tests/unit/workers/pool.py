"""A worker on memory twins: everything real but the broker, Redis and the model."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from infra.clock import SystemClock
from infra.lifecycle import Life
from infra.memory import MemoryHub, MemoryResults, MemorySignals
from infra.memory_blobs import MemoryBlobs
from infra.memory_notes import MemoryArtifactNotes
from infra.metrics import Metrics
from infra.ports import Blobs, Incarnation
from schemas.events import Event
from schemas.jobs import GenerateJob, Head, Sampling
from topics.bus import Delivery, FencedOff, Position
from topics.headers import Headers
from workers.artifact_cache import ArtifactCache
from workers.assembly import Assembly
from workers.attempt import Attempts
from workers.engine import Engine
from workers.engine_keeper import EngineKeeper
from workers.job_queue import JobQueue
from workers.loop import Loop
from workers.outbox import Outbox
from workers.reservations import Reservations

MODEL = "m"


def job(
    request_id: str, *, tokens: int = 3, streamed: bool = False, lives_s: float = 60.0, priority: int = 0
) -> GenerateJob:
    now = SystemClock().now()
    head = Head(
        request_id,
        MODEL,
        deadline_at=now + lives_s,
        created_at=now,
        reply_to="gw",
        streamed=streamed,
        priority=priority,
    )
    return GenerateJob(head, [1, 2, 3], Sampling(max_tokens=tokens, ignore_eos=True))


class ListConsumer:
    """Hands out what `put` gave it, remembers what came back; refuses a delivery that comes back twice."""

    def __init__(self, me: Incarnation) -> None:
        self.me = me
        self.owned = frozenset({0})
        self.waiting: deque[Delivery] = deque()
        self.most_at_once: list[int] = []
        self.finished: list[str] = []
        self.set_asides: list[tuple[str, BaseException]] = []
        self.retired = False
        self.fenced = False
        self._offset = 0
        self._done: set[Position] = set()

    def put(self, one: GenerateJob) -> None:
        self.waiting.append(Delivery(Position("generate.m", 0, self._offset), one))
        self._offset += 1

    async def start(self) -> None: ...

    async def take(self, most: int) -> list[Delivery]:
        await asyncio.sleep(0.001)
        if self.fenced:
            raise FencedOff("a later life has begun")
        self.most_at_once.append(most)
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    def done(self, delivery: Delivery) -> None:
        assert delivery.at not in self._done
        self._done.add(delivery.at)
        self.finished.append(delivery.job.head.request_id)

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def set_aside(self, delivery: Delivery, error: BaseException) -> None:
        self.set_asides.append((delivery.job.head.request_id, error))
        self.done(delivery)

    async def retire(self) -> None:
        self.retired = True

    async def close(self) -> None: ...


class ListProducer:
    """Keeps what is sent; `refuse` is raised instead."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, msgspec.Struct]] = []
        self.headers: list[Headers | None] = []  # of what is sent
        self.refuse: Exception | None = None

    async def start(self) -> None: ...

    async def send(
        self,
        topic: str,
        message: msgspec.Struct,
        *,
        partition: int | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> Position:
        if self.refuse is not None:
            raise self.refuse
        self.sent.append((topic, message))
        self.headers.append(headers)
        return Position(topic, partition or 0, len(self.sent))

    async def close(self) -> None: ...


class Worker:
    """One life of a worker over a hub that it may share with others."""

    def __init__(
        self,
        hub: MemoryHub,
        engine: Engine,
        *,
        name: str = "w",
        epoch: int = 1,
        slots: int = 8,
        drain_s: float = 5.0,
        blobs: Blobs | None = None,
        producer: ListProducer | None = None,
        results: MemoryResults | None = None,
    ) -> None:
        self.hub = hub
        self.engine = engine
        self.me = Incarnation(name, epoch)
        self.consumer = ListConsumer(self.me)
        self.results = results or MemoryResults(hub)
        self.life = Life(drain_s)
        metrics, outbox = Metrics(), Outbox(self.results)
        keeper = EngineKeeper(engine, metrics, MODEL)
        self.reservations = Reservations(name, self._release, metrics)
        self.producer = producer or ListProducer()
        self.released: list[tuple[list[str], list[str]]] = []
        cache = ArtifactCache(blobs or MemoryBlobs(), 1 << 20, MODEL, metrics, SystemClock())
        assembly = Assembly(engine, cache, MemoryArtifactNotes(SystemClock()))
        attempts = Attempts(
            self.me,
            self.results,
            assembly,
            engine,
            keeper,
            outbox,
            self.producer,
            self.reservations,
            metrics,
            SystemClock(),
            max_attempts=3,
        )
        self.queue = JobQueue()
        self.loop = Loop(MODEL, slots, self.consumer, MemorySignals(hub), attempts, keeper, outbox, self.queue)

    async def _release(self, first_tokens: Sequence[str], ended: Sequence[str]) -> int:
        self.released.append((list(first_tokens), list(ended)))
        return len(ended)

    def events(self, request_id: str) -> list[Event]:
        return [event for batch in self.hub.request(MODEL, request_id).stream for event in batch.events]

    def ended(self, request_id: str) -> bool:
        return request_id in self.consumer.finished

    async def _begin(self) -> asyncio.Task[None]:
        self.hub.alive[(MODEL, self.me.worker)] = self.me.epoch
        await self.engine.start(lambda _: None)
        return asyncio.create_task(self.loop.run(self.life))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Worker"]:
        """Alive and taking jobs; drained at the end."""
        task = await self._begin()
        try:
            yield self
        finally:
            self.life.stop()
            await task
            await self.engine.close()

    @contextlib.asynccontextmanager
    async def killed(self) -> AsyncIterator["Worker"]:
        """Alive and taking jobs; at the end it is gone without a word, as after kill -9."""
        task = await self._begin()
        try:
            yield self
        finally:
            del self.hub.alive[(MODEL, self.me.worker)]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.engine.close()
