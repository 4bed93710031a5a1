"""Leases of one model as any number of processes see them: the twin in memory, and Redis."""

from collections.abc import Awaitable, Callable

import msgspec

from infra.ports import Incarnation, Leases, Tick
from schemas.signals import Beat

TTL_MS, LIFE_TTL_MS = 400, 1_200
PARTITIONS = 12


class Pool(msgspec.Struct):
    """Leases of one model, as seen by any number of processes; `sleep` lets seconds pass."""

    connect: Callable[[], Leases]
    sleep: Callable[[float], Awaitable[None]]

    async def expire(self) -> None:
        await self.sleep(TTL_MS / 1000 + 0.05)

    async def forget_names(self) -> None:
        """Of those who do not tick."""
        await self.sleep(LIFE_TTL_MS / 1000 + 0.05)

    async def some_time(self) -> None:
        """Less than a lease time; three of them are more."""
        await self.sleep(TTL_MS / 1000 * 0.4)

    async def join(self, worker: str) -> "Member":
        leases = self.connect()
        return Member(leases, await leases.join(worker))


class Member(msgspec.Struct):
    leases: Leases
    me: Incarnation

    async def tick(self, partitions: int = PARTITIONS) -> Tick:
        return await self.leases.tick(self.me, partitions, beat_of(self.me))

    async def retire(self) -> None:
        await self.leases.retire(self.me, PARTITIONS, beat_of(self.me))

    async def leave(self) -> None:
        await self.leases.leave(self.me)


def beat_of(me: Incarnation, running: int = 0) -> Beat:
    return Beat(me.worker, me.epoch, at=1.0, running=running)


async def settle(*members: Member, partitions: int = PARTITIONS) -> list[frozenset[int]]:
    """Tick in turn until nothing moves."""
    before: list[frozenset[int]] = []
    for _ in range(8):
        now = [(await one.tick(partitions)).owned for one in members]
        if now == before:
            return now
        before = now
    raise AssertionError(f"shares keep moving: {before}")
