"""The in-process twin of the bus, stricter than a broker: what a broker would let pass fails the test here."""

import asyncio
from collections.abc import Collection, Iterable, Mapping

import msgspec

from infra.clock import Clock
from infra.faults import Missing
from infra.ports import Blobs, Incarnation
from topics import claim_check
from topics.bus import Delivery, PartitionConsumer, Position
from topics.headers import Headers
from topics.names import MAX_MESSAGE_BYTES
from topics.reader import Polled
from topics.records import Record


class MemoryBus:
    """The logs and commits that all producers and readers of one test share. `topics`: name -> partitions."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self._logs: dict[str, list[list[Record]]] = {name: [[] for _ in range(count)] for name, count in topics.items()}
        self._commits: dict[tuple[str, str, int], int] = {}
        self._arrived = asyncio.Event()

    def partitions(self, topic: str) -> int:
        """0 for a topic that does not exist."""
        return len(self._logs.get(topic, ()))

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
        timestamp_ms: int = 0,
    ) -> Position:
        """Store a record as any client might have produced it."""
        log = self._logs[topic][partition]
        at = Position(topic, partition, len(log))
        log.append(Record(at, timestamp_ms, key, value, tuple(headers)))
        self._arrived.set()
        return at

    def log(self, topic: str, partition: int, start: int = 0) -> list[Record]:
        return self._logs[topic][partition][start:]

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        return self._commits.get((group, topic, partition))

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._commits[group, topic, partition] = offset

    async def arrival(self, within_s: float) -> None:
        """Wait for the next record of any topic, or until the time is over."""
        self._arrived.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._arrived.wait()
        except TimeoutError:
            return


class MemoryProducer:
    """Implements bus.Producer."""

    def __init__(self, bus: MemoryBus, blobs: Blobs, clock: Clock) -> None:
        self._bus = bus
        self._blobs = blobs
        self._clock = clock
        self._started = False
        self._turn = 0

    async def start(self) -> None:
        self._started = True

    async def send(
        self,
        topic: str,
        message: msgspec.Struct,
        *,
        partition: int | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> Position:
        if not self._started:
            raise RuntimeError("the producer has not been started, or is closed")
        body = await claim_check.pack(message, self._blobs)
        if len(body) > MAX_MESSAGE_BYTES:
            raise AssertionError(f"a message of {len(body)} bytes for {topic}")
        count = self._bus.partitions(topic)
        if count == 0:
            raise Missing(f"topic {topic} does not exist; `triptych topics create` makes it")
        if partition is None:
            self._turn, partition = self._turn + 1, self._turn % count
        if partition >= count:
            raise Missing(f"topic {topic} has no partition {partition}")
        now_ms = int(self._clock.now() * 1000)
        return self._bus.append(topic, partition, body, key=key, headers=headers or (), timestamp_ms=now_ms)

    async def close(self) -> None:
        self._started = False


class MemoryReader:
    """Implements reader.PartitionReader."""

    def __init__(self, bus: MemoryBus, topic: str, group: str) -> None:
        self._bus = bus
        self._topic = topic
        self._group = group
        self._next: dict[int, int] = {}

    async def start(self) -> None:
        if not self.partitions():
            raise Missing(f"topic {self._topic} does not exist; `triptych topics create` makes it")

    def partitions(self) -> int:
        return self._bus.partitions(self._topic)

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, int]:
        self._next = {
            one: position if position is not None else self._bus.committed(self._group, self._topic, one) or 0
            for one, position in positions.items()
        }
        return dict(self._next)

    async def poll(self, partitions: Collection[int], wait_s: float) -> Polled:
        records = self._drain(partitions)
        if not records and wait_s > 0:
            await self._bus.arrival(wait_s)
            records = self._drain(partitions)
        return Polled(records)

    async def commit(self, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            if partition not in self._next:
                raise AssertionError(f"commit to partition {partition}, which is not followed")
            self._bus.commit(self._group, self._topic, partition, offset)

    async def close(self) -> None:
        self._next = {}

    def _drain(self, partitions: Collection[int]) -> list[Record]:
        records: list[Record] = []
        for partition in partitions:
            found = self._bus.log(self._topic, partition, self._next[partition])
            self._next[partition] += len(found)
            records += found
        return records


class StrictConsumer:
    """Any PartitionConsumer, watched: every delivery is given back exactly once, unless its worker retires."""

    def __init__(self, watched: PartitionConsumer) -> None:
        self._watched = watched
        self._open: dict[int, Delivery] = {}  # by identity: the same record may be delivered again after a loss
        self._retired = False

    @property
    def me(self) -> Incarnation:
        return self._watched.me

    @property
    def owned(self) -> frozenset[int]:
        return self._watched.owned

    async def start(self) -> None:
        await self._watched.start()

    async def take(self, most: int) -> list[Delivery]:
        if self._retired:
            raise AssertionError("take after retire")
        deliveries = await self._watched.take(most)
        self._open |= {id(one): one for one in deliveries}
        return deliveries

    async def watch(self) -> None:
        await self._watched.watch()

    async def set_aside(self, delivery: Delivery, error: BaseException) -> None:
        del self._open[id(delivery)]
        await self._watched.set_aside(delivery, error)

    def done(self, delivery: Delivery) -> None:
        if self._open.pop(id(delivery), None) is None:
            raise AssertionError(f"{delivery.at} is not open: done twice, or never delivered here")
        self._watched.done(delivery)

    async def retire(self) -> None:
        self._retired = True
        await self._watched.retire()

    async def close(self) -> None:
        await self._watched.close()
        if self._open and not self._retired:
            raise AssertionError(f"never done: {', '.join(str(one.at) for one in self._open.values())}")
