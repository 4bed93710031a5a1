"""The bus with all that a test may do to it, once in memory and once on a broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from infra.clock import SystemClock
from infra.memory_blobs import MemoryBlobs
from infra.memory_leases import MemoryLeases
from infra.metrics import Metrics
from infra.settings import Settings
from schemas.jobs import DeadLetter, GenerateJob, Head, Sampling
from schemas.manifest import Limits, Manifest, Source
from schemas.signals import Beat
from tests.contracts.topics_behind import KafkaTopic, MemoryTopic, TopicBehind
from tests.waiting import until
from topics import admin, names
from topics.bus import Delivery, Producer
from topics.checks import Belongs
from topics.dead_letters import DeadLetters
from topics.kafka import KafkaProducer
from topics.kafka_reader import KafkaReader
from topics.memory import MemoryBus, MemoryProducer, MemoryReader, StrictConsumer
from topics.opener import Opener
from topics.partitions import LeasedConsumer
from topics.reader import PartitionReader

PARTITIONS = 4


def job(request_id: str, prompt_tokens: int = 3) -> GenerateJob:
    now = SystemClock().now()
    head = Head(request_id, "m", deadline_at=now + 600, created_at=now, reply_to="gw")
    return GenerateJob(head, list(range(1_000, 1_000 + prompt_tokens)), Sampling(max_tokens=4))


def id_of(delivery: Delivery) -> str:
    return delivery.job.head.request_id


class World:
    """What every backend offers to the suite."""

    def __init__(self, model: str, parts: AsyncExitStack, new_reader: Callable[[], PartitionReader]) -> None:
        self.model = model
        self.topic = names.generate(model)
        self.group = names.group(model)
        self.clock = SystemClock()
        self.blobs = MemoryBlobs()
        self.leases = MemoryLeases(self.clock)
        self.producer: Producer
        self.behind: TopicBehind
        self._parts = parts
        self._new_reader = new_reader

    async def consumer(self, worker: str = "a", opener: Opener | None = None) -> StrictConsumer:
        """Started, and closed at the end of the test."""
        consumer = StrictConsumer(self.unstarted(worker, opener))
        await consumer.start()
        self._parts.push_async_callback(consumer.close)
        return consumer

    async def letters(self, count: int) -> list[DeadLetter]:
        """As soon as there are so many: they are written beside the handing out of what is right."""

        async def so_many() -> bool:
            return len(await self.behind.letters()) >= count

        await until(so_many)
        return await self.behind.letters()

    def opener(self) -> Opener[GenerateJob]:
        letters = DeadLetters(self.producer, self.blobs, Metrics(), self.clock)
        return Opener(Belongs(GenerateJob, ("m",)), self.blobs, letters, self.clock)

    def unstarted(self, worker: str, opener: Opener | None = None) -> LeasedConsumer:
        return LeasedConsumer(
            worker,
            self._new_reader(),
            self.leases,
            opener or self.opener(),
            lambda: Beat("", 0, 0.0, slots=8),
            self.clock,
        )


class MemoryWorld(World):
    def __init__(self, parts: AsyncExitStack) -> None:
        model = "m"
        self.bus = MemoryBus({names.generate(model): PARTITIONS, names.DEAD_LETTERS: 1})
        super().__init__(model, parts, lambda: MemoryReader(self.bus, self.topic, self.group))
        self.producer = MemoryProducer(self.bus, self.blobs, self.clock)
        self.behind = MemoryTopic(self.bus, self.topic, self.group)


class KafkaWorld(World):
    def __init__(self, bootstrap: str, parts: AsyncExitStack) -> None:
        super().__init__(
            f"m-{uuid.uuid4().hex[:10]}", parts, lambda: KafkaReader(bootstrap, self.topic, self.group, self.clock)
        )
        self.bootstrap = bootstrap
        self.producer = KafkaProducer(bootstrap, self.blobs)
        self.behind = KafkaTopic(bootstrap, self.topic, self.group)

    def manifest(self, partitions: int = PARTITIONS) -> Manifest:
        return Manifest(self.model, Source("hf"), Limits(512), partitions=partitions)


@asynccontextmanager
async def memory_world() -> AsyncIterator[MemoryWorld]:
    async with AsyncExitStack() as parts:
        world = MemoryWorld(parts)
        await world.producer.start()
        yield world


@asynccontextmanager
async def kafka_world(bootstrap: str) -> AsyncIterator[KafkaWorld]:
    async with AsyncExitStack() as parts:
        world = KafkaWorld(bootstrap, parts)
        await admin.create(Settings(kafka=bootstrap), [world.manifest()])
        await world.producer.start()
        parts.push_async_callback(world.producer.close)
        yield world


class Sink(msgspec.Struct):
    """Takes until it has what it waits for."""

    consumer: StrictConsumer
    got: list[Delivery] = []

    async def until(self, count: int, within_s: float = 15.0) -> list[Delivery]:
        async with asyncio.timeout(within_s):
            while len(self.got) < count:
                self.got += await self.consumer.take(16)
        return self.got

    async def nothing_more(self, takes: int = 3) -> None:
        for _ in range(takes):
            more = await self.consumer.take(16)
            assert not more, f"also got {[str(one.at) for one in more]}"

    def done(self) -> None:
        for one in self.got:
            self.consumer.done(one)
        self.got.clear()
