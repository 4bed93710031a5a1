"""PartitionReader on Kafka's protocol, by `assign()`: no group protocol, but offsets are committed to a group."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CorruptRecordException, KafkaError

from infra.clock import Clock, SystemClock
from infra.faults import Missing, Unavailable
from topics.broker import METADATA_MAX_AGE_MS, detect
from topics.bus import Position
from topics.reader import Polled
from topics.records import Record
from topics.salvage import salvage

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 10.0
CLOSE_LIMIT_S = 5.0
METADATA_POLL_S = 0.02
# What one partition may bring at once, before the others get their turn.
CHUNK_BYTES = 256 * 1024


class KafkaReader:
    """Implements reader.PartitionReader for one topic, committing to one group."""

    def __init__(self, bootstrap: str, topic: str, group: str, clock: Clock | None = None) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._clock = clock or SystemClock()
        self._client: AIOKafkaConsumer | None = None
        self._tells_lost_log = True
        self._count = 0
        self._next: dict[int, int] = {}  # of each partition followed: the first offset not returned by poll

    @property
    def _consumer(self) -> AIOKafkaConsumer:
        if self._client is None:
            raise RuntimeError("the reader has not been started, or is closed")
        return self._client

    async def start(self) -> None:
        """Raises Unavailable when no broker answers, Missing when the topic does not exist."""
        broker = await detect(self._bootstrap)
        client = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=broker.fetch_wait_ms,
            max_partition_fetch_bytes=CHUNK_BYTES,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
        )
        self._client = client
        self._tells_lost_log = broker.tells_lost_log
        try:
            async with self._answers("start reading"):
                await client.start()
                await self._learn_topic(client)
        except BaseException:
            await self.close()
            raise

    def partitions(self) -> int:
        # Metadata may be missing for a moment while a broker restarts; a topic never shrinks.
        self._count = max(self._count, len(self._consumer.partitions_for_topic(self._topic) or ()))
        return self._count

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, int]:
        known = {one: position for one, position in positions.items() if position is not None}
        async with self._answers("look up where to read on"):
            found = await self._starts([one for one in positions if one not in known])
        self._next = known | found
        # From here on without a pause: `assign` forgets all positions, and the client must not read from wrong ones.
        self._consumer.assign([self._tp(one) for one in self._next])
        self._seek(self._next)
        return dict(self._next)

    async def poll(self, partitions: Collection[int], wait_s: float) -> Polled:
        asked = [self._tp(one) for one in partitions if one in self._next]
        if not asked:
            return Polled([])
        try:
            async with self._answers("read"):
                chunks = await self._consumer.getmany(*asked, timeout_ms=int(wait_s * 1000))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - below every handler: header names, checksums, whatever a codec raises
            return await self._recover(asked, error)
        # No pause between draining and returning: a caller that gives up in between would lose the records.
        records = [self._record(one) for chunk in chunks.values() for one in chunk]
        for record in records:
            self._next[record.at.partition] = record.at.offset + 1
        return Polled(records, {} if records else await self._idle_positions(asked))

    async def commit(self, offsets: Mapping[int, int]) -> None:
        async with self._answers("commit"):
            await self._consumer.commit({self._tp(one): offset for one, offset in offsets.items() if one in self._next})

    async def close(self) -> None:
        """Takes at most 5 s."""
        if self._client is None:
            return
        client, self._client = self._client, None
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await client.stop()
        except (TimeoutError, KafkaError) as error:
            log.warning("consumer did not close cleanly: %r", error)

    async def _learn_topic(self, client: AIOKafkaConsumer) -> None:
        if self._topic not in await client.topics():
            raise Missing(f"topic {self._topic} does not exist; `triptych topics create` makes it")
        client.assign([])  # with nothing assigned it keeps the metadata of all topics, and asks for it at once
        while not client.partitions_for_topic(self._topic):  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(METADATA_POLL_S)

    async def _starts(self, partitions: list[int]) -> dict[int, int]:
        """The commit of each, if the log still reaches there; else the log's beginning."""
        tps = [self._tp(one) for one in partitions]
        if not tps:
            return {}
        committed = await asyncio.gather(*(self._consumer.committed(tp) for tp in tps))
        first = await self._consumer.beginning_offsets(tps)
        last = await self._consumer.end_offsets(tps)
        return {
            tp.partition: offset if offset is not None and first[tp] <= offset <= last[tp] else first[tp]
            for tp, offset in zip(tps, committed, strict=True)
        }

    async def _idle_positions(self, asked: Iterable[TopicPartition]) -> dict[int, int]:
        """The client's own positions: it steps over transaction markers, of which no record tells."""
        async with self._answers("look up positions"):
            await self._rewind_lost(asked)
            positions = {tp.partition: await self._consumer.position(tp) for tp in asked}
        self._next |= positions
        return positions

    async def _rewind_lost(self, asked: Iterable[TopicPartition]) -> None:
        """Back to the start where a broker lost its log and does not say so, or new records would wait for ever."""
        if self._tells_lost_log:
            return
        ends = {tp: self._consumer.highwater(tp) for tp in asked}
        lost = [tp for tp, end in ends.items() if end is not None and end < self._next[tp.partition]]
        if lost:
            log.warning("%s: the broker has lost the log of partitions %s", self._topic, [tp.partition for tp in lost])
            await self._consumer.seek_to_beginning(*lost)

    async def _recover(self, asked: list[TopicPartition], error: Exception) -> Polled:
        """Something in one of these partitions cannot be decoded; the client does not say which.

        It may have drained others before it raised, so all go back to where poll has got to: first of all, so that
        nothing is lost if the rest fails. Those that have anything are then read tolerantly, one piece each.
        """
        log.warning("%s: the client cannot read a record (%s); reading on without it", self._topic, error)
        self._seek(self._next)
        behind = {
            tp.partition: self._next[tp.partition]
            for tp in asked
            if (self._consumer.highwater(tp) or 0) > self._next[tp.partition]
        }
        async with self._answers("salvage records"):
            records, after = await salvage(self._bootstrap, self._topic, behind)
        if after == behind:
            raise Unavailable(f"{self._topic}: cannot get past {behind}: {error!r}")
        self._next |= after
        self._seek(after)
        return Polled(records, after)

    def _seek(self, positions: Mapping[int, int]) -> None:
        for partition, position in positions.items():
            self._consumer.seek(self._tp(partition), position)

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def _record(self, one: ConsumerRecord) -> Record:
        # A header's value may be null; and a producer's clock may be wrong, which must not make it wait for ever.
        headers = tuple((name, value or b"") for name, value in one.headers)
        produced_ms = min(one.timestamp, int(self._clock.now() * 1000))
        return Record(Position(one.topic, one.partition, one.offset), produced_ms, one.key, one.value, headers)

    @asynccontextmanager
    async def _answers(self, what: str) -> AsyncIterator[None]:
        """Inside, no answer in time and every error of the broker become Unavailable."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                yield
        except TimeoutError as error:
            raise Unavailable(f"could not {what} within {ANSWER_LIMIT_S:g} s") from error
        except CorruptRecordException:
            raise
        except KafkaError as error:
            raise Unavailable(f"could not {what}: {error!r}") from error
