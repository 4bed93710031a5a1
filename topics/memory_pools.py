"""The in-process twin of a stateless pool's membership: the only member of its group."""

import asyncio
from typing import Generic, TypeVar

from infra.faults import Missing
from infra.tasks import first_failure
from schemas.jobs import Job
from topics.group_jobs import GroupJobs, Work
from topics.memory import MemoryBus
from topics.opener import Opener

POLL_S = 0.05

J = TypeVar("J", bound=Job)


class MemoryPool(Generic[J]):
    """Implements pools.Pool."""

    def __init__(self, bus: MemoryBus, topic: str, opener: Opener[J], work: Work[J], most: int) -> None:
        self._bus = bus
        self._topic = topic
        self._jobs = GroupJobs(opener, work, most)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def running(self) -> int:
        return self._jobs.running

    async def start(self) -> None:
        count = self._bus.partitions(self._topic)
        if not count:
            raise Missing(f"topic {self._topic} does not exist; `triptych topics create` makes it")
        positions = {one: self._bus.committed(self._topic, self._topic, one) or 0 for one in range(count)}
        self._tasks = [asyncio.create_task(self._read(positions)), asyncio.create_task(self._commit_on())]

    async def retire(self) -> None:
        await self._jobs.stop_beginning()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            self._commit()

    async def drained(self, within_s: float) -> bool:
        return await self._jobs.drained(within_s)

    async def watch(self) -> None:
        await first_failure(self._tasks)

    async def close(self) -> None:
        await self.retire()
        await self._jobs.close()

    async def _read(self, positions: dict[int, int]) -> None:
        while True:
            for partition, position in positions.items():
                records = self._bus.log(self._topic, partition, position)
                positions[partition] = position + len(records)
                await self._jobs.begin(records, self._jobs.tenure)
            await self._bus.arrival(POLL_S)

    async def _commit_on(self) -> None:
        while True:
            await self._jobs.progress.wait()
            self._jobs.progress.clear()
            self._commit()

    def _commit(self) -> None:
        for partition, offset in self._jobs.committable().items():
            self._bus.commit(self._topic, self._topic, partition, offset)
