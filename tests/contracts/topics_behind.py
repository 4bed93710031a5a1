"""A topic as a test sees it behind the backs of those that use it: what stands there, in memory or on a broker."""

import asyncio
from typing import Protocol

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.codec import decode_letter
from schemas.jobs import DeadLetter
from tests import raw_batches
from topics import names
from topics.memory import MemoryBus


class TopicBehind(Protocol):
    async def raw(self, partition: int, rows: list[raw_batches.Row], codec: str = "none") -> None:
        """Store these as another client would."""
        ...

    async def letters(self) -> list[DeadLetter]:
        """Those about this topic, in order."""
        ...

    async def committed(self, partition: int) -> int | None:
        """By the group that reads it."""
        ...


class MemoryTopic(msgspec.Struct, frozen=True):
    """Implements TopicBehind. All dead letters of a bus are about its one topic."""

    bus: MemoryBus
    topic: str
    group: str

    async def raw(self, partition: int, rows: list[raw_batches.Row], codec: str = "none") -> None:
        for key, value, headers in rows:
            named = [(name.decode(errors="backslashreplace"), content or b"") for name, content in headers]
            self.bus.append(self.topic, partition, value, key=key, headers=named)

    async def letters(self) -> list[DeadLetter]:
        return [decode_letter(one.value or b"") for one in self.bus.log(names.DEAD_LETTERS, 0)]

    async def committed(self, partition: int) -> int | None:
        return self.bus.committed(self.group, self.topic, partition)


class KafkaTopic(msgspec.Struct, frozen=True):
    """Implements TopicBehind."""

    bootstrap: str
    topic: str
    group: str

    async def raw(self, partition: int, rows: list[raw_batches.Row], codec: str = "none") -> None:
        await raw_batches.produce(self.bootstrap, self.topic, partition, raw_batches.batch(rows, codec))

    async def letters(self) -> list[DeadLetter]:
        values = await read_all(self.bootstrap, names.DEAD_LETTERS, 0)
        return [letter for one in values if (letter := decode_letter(one)).topic == self.topic]

    async def committed(self, partition: int) -> int | None:
        client = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=self.group, enable_auto_commit=False)
        await client.start()
        try:
            offset: int | None = await client.committed(TopicPartition(self.topic, partition))
            return offset
        finally:
            await client.stop()


async def read_all(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """The values of everything that is in a partition now."""
    client = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20)
    tp, values = TopicPartition(topic, partition), list[bytes]()
    await client.start()
    try:
        client.assign([tp])
        end = (await client.end_offsets([tp]))[tp]
        async with asyncio.timeout(20):
            while await client.position(tp) < end:
                values += [one.value for one in (await client.getmany(tp, timeout_ms=200)).get(tp, [])]
        return values
    finally:
        await client.stop()
