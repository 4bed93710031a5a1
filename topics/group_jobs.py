"""The jobs of one topic at work in one member of a consumer group, and how far its partitions may be committed."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from infra.patience import patiently
from schemas.jobs import Job
from topics.bulkhead import Raised, contained
from topics.headers import Headers, passed_on
from topics.opener import Opener
from topics.records import Record
from topics.watermark import Watermark

log = logging.getLogger(__name__)

J = TypeVar("J", bound=Job)
J_contra = TypeVar("J_contra", bound=Job, contravariant=True)


class Work(Protocol[J_contra]):
    """What a stateless pool does with its jobs. Jobs come at least once: the second time must be harmless."""

    async def handle(self, job: J_contra, headers: Headers) -> None:
        """Returns when the job needs nothing more; only then may its offset be committed.

        `headers`: those of its record that the jobs which come of it are to bear, too.

        Raises:
            Unavailable: asked again after a while, for as long as it takes; so a deadline must be looked at here.
            Anything else: a bug on this job; see `give_up`.
        """
        ...

    async def give_up(self, job: J_contra, error: BaseException) -> None:
        """`handle` has failed for good: end the request. Raises as `handle`; the record then becomes a dead letter."""
        ...


class GroupJobs(Generic[J]):
    """At most `most` jobs at a time, each in a task of its own; they finish in any order.

    An assignment of the group is a tenure of the partitions in it. After `revoked`, what is under way goes on, but
    counts for nothing unless the very same record comes back, which then is not begun again.
    """

    def __init__(self, opener: Opener[J], work: Work[J], most: int) -> None:
        self._opener = opener
        self._work = work
        self._most = most
        self._tenure = 0
        self._marks: dict[int, Watermark] = {}
        self._running: dict[Record, Watermark | None] = {}  # and the mark to move when it is finished
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Condition()
        self._closed = False
        self.progress = asyncio.Event()  # set when `committable` may have moved

    @property
    def tenure(self) -> int:
        """Counts assignments. Records are of the one in which they were fetched."""
        return self._tenure

    @property
    def running(self) -> int:
        return len(self._running)

    def committable(self) -> dict[int, int]:
        """By partition: the first offset that is not finished."""
        return {partition: mark.committable for partition, mark in self._marks.items()}

    async def begin(self, records: Sequence[Record], tenure: int) -> None:
        """Begin them all; waits for room. Those of a tenure that is over, and all once closed, are left out."""
        for record in records:
            async with self._room:
                await self._room.wait_for(lambda: self._closed or tenure != self._tenure or self._has_room())
                if self._closed or tenure != self._tenure:
                    return
                self._begin(record)

    async def revoked(self) -> None:
        """The partitions are somebody else's now, or will be assigned anew, read from their commits on."""
        async with self._room:
            self._tenure += 1
            self._marks.clear()
            self._running = dict.fromkeys(self._running)
            self._room.notify_all()

    async def stop_beginning(self) -> None:
        async with self._room:
            self._closed = True
            self._room.notify_all()

    async def drained(self, within_s: float) -> bool:
        """Wait for what is under way; False when it took longer than this."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        return not self._tasks

    async def close(self) -> None:
        """Begin nothing more, and stop what is under way."""
        await self.stop_beginning()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _has_room(self) -> bool:
        return len(self._running) < self._most

    def _begin(self, record: Record) -> None:
        mark = self._mark_of(record)
        mark.handed_out(record.at.offset)
        again = record in self._running
        self._running[record] = mark
        if not again:
            task = asyncio.create_task(self._run(record), name=str(record.at))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _mark_of(self, record: Record) -> Watermark:
        mark = self._marks.get(record.at.partition)
        if mark is not None and record.at.offset < mark.next:
            log.warning(
                "%s: the log begins anew", record.at
            )  # the broker has lost it; what was open belongs to the old
            mark = None
        if mark is None:
            mark = self._marks[record.at.partition] = Watermark(record.at.offset)
        return mark

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s failed, and its offset is not committed", task.get_name(), exc_info=error)

    async def _run(self, record: Record) -> None:
        try:
            await self._settle(record)
            if mark := self._running[record]:
                mark.finished(record.at.offset)
                self.progress.set()
        finally:
            del self._running[record]
            async with self._room:
                self._room.notify_all()

    async def _settle(self, record: Record) -> None:
        """Returns when the record has its one outcome: done, its request ended with an error, or a dead letter."""
        job = await self._opener.open(record)
        if job is None:
            return
        try:
            await contained(patiently(lambda: self._work.handle(job, passed_on(record.headers)), str(record.at)))
        except Raised as raised:
            error = raised.__cause__ or raised
            log.error("%s (request %s) failed", record.at, job.head.request_id, exc_info=error)
            await self._give_up(record, job, error)

    async def _give_up(self, record: Record, job: J, error: BaseException) -> None:
        try:
            await contained(patiently(lambda: self._work.give_up(job, error), f"the end of {job.head.request_id}"))
        except Raised as raised:
            log.error("%s (request %s) could not even be ended", record.at, job.head.request_id, exc_info=raised)
            await self._opener.set_aside(record, error)
