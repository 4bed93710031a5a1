"""A stateless pool with all that a test may do to it, once in memory and once on a broker."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra.clock import SystemClock
from infra.memory_blobs import MemoryBlobs
from infra.metrics import Metrics
from infra.settings import Settings
from schemas.jobs import DecodeJob, Head
from schemas.media import SpeechOptions
from tests.contracts.topics_behind import KafkaTopic, MemoryTopic, TopicBehind
from tests.waiting import until
from topics import admin, names
from topics.bus import Producer
from topics.checks import Belongs
from topics.dead_letters import DeadLetters
from topics.headers import Headers
from topics.kafka import KafkaProducer
from topics.memory import MemoryBus, MemoryProducer
from topics.memory_pools import MemoryPool
from topics.opener import Opener
from topics.pools import GroupPool, Pool

PARTITIONS = 4


def job(request_id: str, text: str = "hello") -> DecodeJob:
    now = SystemClock().now()
    head = Head(request_id, "m", deadline_at=now + 600, created_at=now, reply_to="gw")
    return DecodeJob(head, "m/audio", SpeechOptions(), text=text)


class Bench:
    """Work that does what the test says: `hold` a job until `let_go`, or raise what `faults` has for it, in turn."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.headers: dict[str, Headers] = {}
        self.given_up: dict[str, BaseException] = {}
        self.faults: dict[str, list[Exception]] = {}
        self.cannot_give_up: set[str] = set()
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, request_id: str) -> None:
        self._held[request_id] = asyncio.Event()

    def let_go(self, request_id: str) -> None:
        self._held[request_id].set()

    async def handle(self, job: DecodeJob, headers: Headers) -> None:
        request_id = job.head.request_id
        self.begun.append(request_id)
        self.headers[request_id] = headers
        if held := self._held.get(request_id):
            await held.wait()
        if self.faults.get(request_id):
            raise self.faults[request_id].pop(0)
        self.done.append(request_id)

    async def give_up(self, job: DecodeJob, error: BaseException) -> None:
        if job.head.request_id in self.cannot_give_up:
            raise LookupError("no such state")
        self.given_up[job.head.request_id] = error

    async def has_done(self, *request_ids: str, within_s: float = 20.0) -> None:
        await until(lambda: set(request_ids) <= set(self.done), within_s)

    @property
    def twice(self) -> list[str]:
        return [one for one, count in Counter(self.begun).items() if count > 1]


class World:
    def __init__(self, topic: str, parts: AsyncExitStack) -> None:
        self.topic = topic
        self.clock = SystemClock()
        self.blobs = MemoryBlobs()
        self.producer: Producer
        self.behind: TopicBehind
        self._parts = parts

    async def member(self, bench: Bench, most: int = 8) -> Pool:
        """Joined, and closed at the end of the test."""
        letters = DeadLetters(self.producer, self.blobs, Metrics(), self.clock)
        opener = Opener(Belongs(DecodeJob, ("m",), "audio"), self.blobs, letters, self.clock)
        pool = self._member(opener, bench, most)
        self._parts.push_async_callback(pool.close)
        await pool.start()
        return pool

    async def send(self, request_id: str, partition: int) -> None:
        await self.producer.send(self.topic, job(request_id), partition=partition)

    async def has_committed(self, partition: int, offset: int, within_s: float = 10.0) -> None:
        async def so() -> bool:
            return await self.behind.committed(partition) == offset

        await until(so, within_s)

    def _member(self, opener: Opener[DecodeJob], bench: Bench, most: int) -> Pool:
        raise NotImplementedError


class MemoryWorld(World):
    def __init__(self, parts: AsyncExitStack) -> None:
        super().__init__("decode.audio", parts)
        self.bus = MemoryBus({self.topic: PARTITIONS, names.DEAD_LETTERS: 1})
        self.producer = MemoryProducer(self.bus, self.blobs, self.clock)
        self.behind = MemoryTopic(self.bus, topic=self.topic, group=self.topic)

    def _member(self, opener: Opener[DecodeJob], bench: Bench, most: int) -> Pool:
        return MemoryPool(self.bus, self.topic, opener, bench, most)


class KafkaWorld(World):
    def __init__(self, bootstrap: str, parts: AsyncExitStack) -> None:
        super().__init__(f"decode.audio.{uuid.uuid4().hex[:10]}", parts)
        self.bootstrap = bootstrap
        self.producer = KafkaProducer(bootstrap, self.blobs)
        self.behind = KafkaTopic(bootstrap, topic=self.topic, group=self.topic)

    def _member(self, opener: Opener[DecodeJob], bench: Bench, most: int) -> GroupPool[DecodeJob]:
        return GroupPool(self.bootstrap, self.topic, opener, bench, most, self.clock)


async def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """A topic of no served model."""
    await admin.create(Settings(kafka=bootstrap), [])
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        await client.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await client.close()


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
        await create(bootstrap, world.topic)
        await world.producer.start()
        parts.push_async_callback(world.producer.close)
        yield world
