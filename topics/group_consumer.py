"""The Kafka client under FastStream: it never raises for what is in a record, and never returns with nothing."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError

from topics.bus import Position
from topics.records import Record
from topics.salvage import salvage

log = logging.getLogger(__name__)

WAIT_MS = 1_000
RETRY_S = 0.5


class Fetched(msgspec.Struct, frozen=True):
    """A record, and the tenure in which it was fetched: what becomes of it later is too late to ask."""

    record: Record
    tenure: int

    @property
    def topic(self) -> str:
        return self.record.at.topic


class GroupConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """`tenure` is asked at the moment of fetching. `leaves`: whether it says so when it stops."""

    def __init__(
        self, *args: Any, tenure: Callable[[], int], now_ms: Callable[[], int], leaves: bool, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._servers = kwargs["bootstrap_servers"]
        self._tenure = tenure
        self._now_ms = now_ms
        self._leaves = leaves
        self._next: dict[TopicPartition, int] = {}  # the first offset not returned, of what was returned in this tenure
        self._next_of = -1  # that tenure

    async def stop(self) -> None:
        if not self._leaves and self._coordinator is not None:
            self._coordinator.reset_generation()  # it no longer knows of a membership that it could end
        await super().stop()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Fetched]]:
        """Waits for as long as there is nothing: FastStream would sleep for its batch time, and a job with it."""
        while True:
            try:
                chunks = await super().getmany(*partitions, timeout_ms=WAIT_MS, max_records=max_records)
            except (ConsumerStoppedError, KafkaError):
                raise
            except Exception as error:  # noqa: BLE001 - below every handler: header names, checksums, whatever a codec raises
                found = await self._recovered(error)
            else:
                found = {tp: [self._record(one) for one in chunk] for tp, chunk in chunks.items()}
            if found:
                return self._fetched(found)

    def _fetched(self, found: dict[TopicPartition, list[Record]]) -> dict[TopicPartition, list[Fetched]]:
        tenure = self._forget_others()
        self._next |= {tp: chunk[-1].at.offset + 1 for tp, chunk in found.items()}
        return {tp: [Fetched(one, tenure) for one in chunk] for tp, chunk in found.items()}

    def _forget_others(self) -> int:
        tenure = self._tenure()
        if tenure != self._next_of:
            self._next, self._next_of = {}, tenure
        return tenure

    async def _recovered(self, error: Exception) -> dict[TopicPartition, list[Record]]:
        """FastStream starts a loop that failed again at once, and says why only the first time."""
        try:
            return await self._recover(error)
        except ConsumerStoppedError:
            raise
        except Exception:
            log.exception("reading on failed, trying again in %.1f s", RETRY_S)
            await asyncio.sleep(RETRY_S)
            return {}

    async def _recover(self, error: Exception) -> dict[TopicPartition, list[Record]]:
        """Something in one of the partitions cannot be decoded; the client does not say which.

        It may have drained others before it raised, so all go back to where they were, and are read tolerantly.
        """
        log.warning("the client cannot read a record (%s); reading on without it", error)
        self._forget_others()
        where = {tp: await self._position(tp) for tp in self.assignment()}
        found: dict[TopicPartition, list[Record]] = {}
        for tp, position in where.items():
            self.seek(tp, position)
            records, after = await salvage(self._servers, tp.topic, {tp.partition: position})
            self.seek(tp, after[tp.partition])
            if records:
                found[tp] = records
        if not found:
            await asyncio.sleep(RETRY_S)
        return found

    async def _position(self, tp: TopicPartition) -> int:
        if tp in self._next:
            return self._next[tp]
        committed = await self.committed(tp)
        return int(committed) if committed is not None else int((await self.beginning_offsets([tp]))[tp])

    def _record(self, one: ConsumerRecord) -> Record:
        # A header's value may be null; and a producer's clock may be wrong.
        headers = tuple((name, value or b"") for name, value in one.headers)
        at = Position(one.topic, one.partition, one.offset)
        return Record(at, min(one.timestamp, self._now_ms()), one.key, one.value, headers)


class OnRevoked(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Calls `revoke` when the group is about to share its partitions out anew."""

    def __init__(self, revoke: Callable[[], Any]) -> None:
        self._revoke = revoke

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._revoke()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Reading goes on from the commits."""
