"""The partition-owning consumer: partitions are leased, not group-assigned (DESIGN.md section 4), and read by hand."""

import asyncio
import logging
from collections.abc import Callable

from infra.clock import Clock
from infra.faults import Unavailable
from infra.ports import Incarnation, Leases
from schemas.errors import TriptychError
from schemas.jobs import GenerateJob
from schemas.signals import Beat
from topics.bus import Delivery
from topics.headers import passed_on
from topics.opener import Opener
from topics.ownership import Ownership
from topics.reader import PartitionReader, Polled
from topics.records import Record
from topics.tenure import Tenure, oldest

log = logging.getLogger(__name__)

TAKE_WAIT_S = 0.1
COMMIT_EVERY_S = 0.25
# After an outage of broker or object store, before asking again.
TROUBLE_WAIT_S = 0.25


class LeasedConsumer:
    """Implements bus.PartitionConsumer over any PartitionReader and Leases.

    Two tasks run beside `take`: Ownership renews the leases, another commits. Only `take` changes what the reader
    reads; a lease that is lost stops the handing out at once all the same, by the check of ownership.
    """

    def __init__(
        self,
        worker: str,
        reader: PartitionReader,
        leases: Leases,
        opener: Opener[GenerateJob],
        beat: Callable[[], Beat],
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._opener = opener
        self._ownership = Ownership(worker, leases, beat, reader.partitions, clock)
        self._followed: dict[int, Tenure] = {}
        self._committing: asyncio.Task[None] | None = None

    @property
    def me(self) -> Incarnation:
        return self._ownership.me

    @property
    def owned(self) -> frozenset[int]:
        return self._ownership.owned

    async def start(self) -> None:
        """Raises Unavailable when broker or leases cannot be reached."""
        await self._reader.start()
        await self._ownership.start()
        self._committing = asyncio.create_task(self._keep_committing())

    async def take(self, most: int) -> list[Delivery]:
        self._ownership.raise_if_over()
        if self._committing is not None and self._committing.done():
            self._committing.result()
        try:
            if not self.owned:
                await self._ownership.changed(TAKE_WAIT_S)
            await self._follow()
            await self._fetch()
            return await self._hand_out(most)
        except (Unavailable, TriptychError) as error:
            log.warning("cannot read jobs now, trying again: %s", error)
            await asyncio.sleep(TROUBLE_WAIT_S)
            return []

    def done(self, delivery: Delivery) -> None:
        if tenure := self._ownership.tenures.get(delivery.at.partition):
            tenure.done(delivery)

    async def retire(self) -> None:
        await self._commit()
        await self._ownership.retire()

    async def close(self) -> None:
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)
            self._committing = None
            await self._commit()
        await self._ownership.leave()
        await self._reader.close()

    async def _follow(self) -> None:
        """Tell the reader what to read, if that has changed."""
        wanted = self._ownership.tenures
        if self._followed == wanted:
            return
        starts = await self._reader.follow({one: t.position if t.begun else None for one, t in wanted.items()})
        for partition, tenure in wanted.items():
            tenure.begin(starts[partition])
        self._followed = dict(wanted)

    async def _fetch(self) -> None:
        """Get more for each partition of which nothing is left."""
        followed = self._followed
        hungry = [one for one, tenure in followed.items() if tenure.next is None]
        if hungry:
            wait_s = TAKE_WAIT_S if len(hungry) == len(followed) else 0.0
            self._add(await self._reader.poll(hungry, wait_s), followed)

    def _add(self, polled: Polled, followed: dict[int, Tenure]) -> None:
        """Into the tenures they were fetched for, even if those are over by now: then nobody looks at them again."""
        for record in polled.records:
            partition = record.at.partition
            if record.at.offset < followed[partition].position:
                self._begin_anew(record)
            followed[partition].add(record)
        for partition, position in polled.positions.items():
            followed[partition].skip_to(position)

    def _begin_anew(self, record: Record) -> None:
        """The broker has lost its log and fills a new one; what was open belongs to the old."""
        partition, tenures = record.at.partition, self._ownership.tenures
        log.warning("%s: the log begins anew", record.at)
        ours = tenures.get(partition) is self._followed[partition]
        self._followed[partition] = Tenure()
        self._followed[partition].begin(record.at.offset)
        if ours:
            tenures[partition] = self._followed[partition]

    async def _hand_out(self, most: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        while len(deliveries) < most and self._ownership.valid:
            if (waiting := oldest(self._ownership.tenures.values())) is None:
                break
            tenure, record = waiting
            if job := self._opener.at_hand(record):
                deliveries.append(Delivery(record.at, job, passed_on(record.headers)))
                tenure.hand_out(deliveries[-1])
                continue
            if not deliveries:  # what needs IO goes alone: a caller that gives up meanwhile must not lose the others
                deliveries = await self._open(tenure, record)
            break
        return deliveries

    async def _open(self, tenure: Tenure, record: Record) -> list[Delivery]:
        job = await self._opener.open(record)
        if not self._ownership.valid or self._ownership.tenures.get(record.at.partition) is not tenure:
            return []
        if job is None:
            tenure.settle()
            return []
        delivery = Delivery(record.at, job, passed_on(record.headers))
        tenure.hand_out(delivery)
        return [delivery]

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            await self._commit()

    async def _commit(self) -> None:
        """Commit the finished prefix of each partition that is held at this moment."""
        tenures = self._ownership.tenures if self._ownership.valid else {}
        held = [(one, tenure) for one, tenure in self._followed.items() if tenures.get(one) is tenure]
        due = {one: (tenure, offset) for one, tenure in held if (offset := tenure.to_commit()) is not None}
        if not due:
            return
        try:
            await self._reader.commit({one: offset for one, (_, offset) in due.items()})
        except Unavailable as error:
            log.warning("cannot commit now, trying again: %s", error)
            return
        for tenure, offset in due.values():
            tenure.committed = offset
