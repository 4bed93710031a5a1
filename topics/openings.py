"""Records whose opening takes IO (a payload to fetch, a dead letter to write), beside the handing out of all others."""

import asyncio
import logging
from collections import Counter

import msgspec

from schemas.jobs import GenerateJob
from topics.bus import Delivery
from topics.headers import passed_on
from topics.opener import Opener
from topics.records import Record
from topics.tenure import Tenure

log = logging.getLogger(__name__)

# Of one partition at a time: one that has nothing but such records stops here, and no other partition does.
AT_ONCE = 4


class _Opened(msgspec.Struct, frozen=True):
    tenure: Tenure
    delivery: Delivery


class Openings:
    """One task per record. Those of a tenure that is over end with the next `prune`."""

    def __init__(self, opener: Opener[GenerateJob]) -> None:
        self._opener = opener
        self._tasks: dict[asyncio.Task[None], Tenure] = {}
        self._count: Counter[Tenure] = Counter()
        self._opened: list[_Opened] = []
        self._changed = asyncio.Event()

    def __bool__(self) -> bool:
        """Some are under way."""
        return bool(self._tasks)

    def has_room(self, tenure: Tenure) -> bool:
        return self._count[tenure] < AT_ONCE

    def begin(self, tenure: Tenure) -> None:
        """Open the next record of this tenure."""
        record = tenure.take()
        task = asyncio.create_task(self._open(tenure, record), name=f"open {record.at}")
        self._tasks[task] = tenure
        self._count[tenure] += 1
        task.add_done_callback(self._ended)

    def take(self, most: int, held: dict[int, Tenure]) -> list[Delivery]:
        """At most `most` of what has been opened, of partitions that are still held in the same tenure."""
        ready = [one for one in self._opened if held.get(one.delivery.at.partition) is one.tenure]
        self._opened = ready[most:]
        for one in ready[:most]:
            one.tenure.deliver(one.delivery)
        return [one.delivery for one in ready[:most]]

    async def changed(self, within_s: float) -> None:
        """Wait until one of them is over, or the time is."""
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def prune(self, held: dict[int, Tenure]) -> None:
        """Partitions that are not held any more have other readers."""
        alive = {id(tenure) for tenure in held.values()}
        for task, tenure in self._tasks.items():
            if id(tenure) not in alive:
                task.cancel()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, tenure: Tenure, record: Record) -> None:
        job = await self._opener.open(record)  # raises nothing for what a record holds
        if job is None:
            tenure.settle(record.at.offset)
        else:
            self._opened.append(_Opened(tenure, Delivery(record.at, job, passed_on(record.headers))))

    def _ended(self, task: asyncio.Task[None]) -> None:
        tenure = self._tasks.pop(task)
        self._count[tenure] -= 1
        if not self._count[tenure]:
            del self._count[tenure]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s failed, and its offset is not committed", task.get_name(), exc_info=error)
        self._changed.set()
