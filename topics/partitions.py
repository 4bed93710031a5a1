"""The partition-owning consumer: partitions are leased, not group-assigned (DESIGN.md section 4), and read by hand."""

import asyncio
import logging
from collections.abc import Callable

from infra.clock import Clock
from infra.faults import Unavailable
from infra.ports import Incarnation, Leases
from infra.tasks import first_failure
from schemas.codec import encode
from schemas.jobs import GenerateJob
from schemas.signals import Beat
from topics.bus import Delivery
from topics.headers import passed_on
from topics.opener import Opener
from topics.openings import Openings
from topics.ownership import Ownership
from topics.reader import PartitionReader, Polled
from topics.records import Record
from topics.tenure import Tenure, oldest

log = logging.getLogger(__name__)

TAKE_WAIT_S = 0.1
COMMIT_EVERY_S = 0.25
# While records are being opened and nothing else is at hand: how long for one of them, before asking the broker.
OPENING_WAIT_S = 0.02
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
        self._openings = Openings(opener)
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

    async def watch(self) -> None:
        await first_failure([one for one in (self._ownership.renewing, self._committing) if one is not None])
        self._ownership.raise_if_over()

    async def take(self, most: int) -> list[Delivery]:
        self._ownership.raise_if_over()
        try:
            if not self.owned:
                await self._ownership.changed(TAKE_WAIT_S)
            await self._follow()
            await self._fetch()
            if not (deliveries := self._hand_out(most)) and self._openings:
                await self._openings.changed(OPENING_WAIT_S)  # without this pause nothing else would ever run
                deliveries = self._hand_out(most)
            return deliveries
        except Unavailable as error:
            log.warning("cannot read jobs now, trying again: %s", error)
            await asyncio.sleep(TROUBLE_WAIT_S)
            return []

    def done(self, delivery: Delivery) -> None:
        if tenure := self._ownership.tenures.get(delivery.at.partition):
            tenure.done(delivery)

    async def set_aside(self, delivery: Delivery, error: BaseException) -> None:
        at, headers = delivery.at, tuple(delivery.headers)
        await self._opener.set_aside(Record(at, 0, None, encode(delivery.job), headers), error)
        self.done(delivery)

    async def retire(self) -> None:
        await self._commit()
        await self._ownership.retire()

    async def close(self) -> None:
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)
            self._committing = None
            await self._commit()
        await self._openings.close()
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
        self._openings.prune(self._followed)

    async def _fetch(self) -> None:
        """Get more for each partition of which nothing is left."""
        followed = self._followed
        hungry = [one for one, tenure in followed.items() if tenure.next is None]
        if hungry:
            wait_s = TAKE_WAIT_S if len(hungry) == len(followed) and not self._openings else 0.0
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

    def _hand_out(self, most: int) -> list[Delivery]:
        """What has been opened beside, then what is at hand; a record that takes IO holds up nothing behind it."""
        held = self._ownership.tenures if self._ownership.valid else {}
        deliveries = self._openings.take(most, held)
        ready = list(held.values())
        while len(deliveries) < most and (waiting := oldest(ready)) is not None:
            tenure, record = waiting
            if tenure.takes_io == record.at.offset and not self._openings.has_room(tenure):
                ready.remove(tenure)
            elif job := self._opener.at_hand(record):
                deliveries.append(Delivery(record.at, job, passed_on(record.headers)))
                tenure.take()
                tenure.deliver(deliveries[-1])
            elif self._openings.has_room(tenure):
                self._openings.begin(tenure)
            else:
                tenure.takes_io = record.at.offset
        return deliveries

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
