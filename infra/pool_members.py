"""Who works in the stateless pools: Redis, its twin in memory, and the place of one worker in its pool."""

import asyncio
from collections.abc import Collection, Sequence

from redis.asyncio import Redis

from infra import keys
from infra.clock import Clock
from infra.pool_ports import PoolMembers
from infra.redis_client import Script


class RedisPoolMembers:
    """Implements PoolMembers. `ttl_ms` is shortened in tests only."""

    def __init__(self, redis: Redis, *, ttl_ms: int = keys.LEASE_TTL_MS) -> None:
        self._ttl_ms = ttl_ms
        self._stay = Script(redis, "pool_stay")
        self._look = Script(redis, "pool_look")

    async def stay(self, pool: str, worker: str) -> None:
        await self._stay([keys.pool_members(pool)], [worker, self._ttl_ms])

    async def leave(self, pool: str, worker: str) -> None:
        await self._stay([keys.pool_members(pool)], [worker, 0])

    async def look(self, pools: Sequence[str]) -> list[Collection[str]]:
        if not pools:
            return []
        found = await self._look([keys.pool_members(pool) for pool in pools], [])
        return [frozenset(name.decode(errors="replace") for name in names) for names in found]


class MemoryPoolMembers:
    """The twin in one process: one object for all; workers expire on `clock.monotonic()`."""

    def __init__(self, clock: Clock, *, ttl_ms: int = keys.LEASE_TTL_MS) -> None:
        self._clock = clock
        self._ttl_s = ttl_ms / 1000
        self._until: dict[tuple[str, str], float] = {}  # by pool and worker

    async def stay(self, pool: str, worker: str) -> None:
        self._until[pool, worker] = self._clock.monotonic() + self._ttl_s

    async def leave(self, pool: str, worker: str) -> None:
        self._until.pop((pool, worker), None)

    async def look(self, pools: Sequence[str]) -> list[Collection[str]]:
        now = self._clock.monotonic()
        self._until = {place: until for place, until in self._until.items() if until > now}
        return [frozenset(worker for one, worker in self._until if one == pool) for pool in pools]


class Membership:
    """One worker in its pool, from the first `renew` until it leaves."""

    def __init__(self, members: PoolMembers, pool: str, worker: str) -> None:
        self._members = members
        self._pool = pool
        self._worker = worker
        self._left = False
        # A renewal that is under way could arrive after the farewell.
        self._telling = asyncio.Lock()

    async def renew(self) -> None:
        """Raises Unavailable."""
        async with self._telling:
            if not self._left:
                await self._members.stay(self._pool, self._worker)

    async def leave(self) -> None:
        """Nobody counts on it from now on; a process that has taken its name since says so with its next renewal.

        Raises:
            Unavailable: it counts until its time is over.
        """
        async with self._telling:
            self._left = True
            await self._members.leave(self._pool, self._worker)
