"""The pools of encoders and decoders, as seen from this gateway: who works there, and which requests wait in vain.

A pool without workers may be on its way up from zero, for the very jobs that wait there; so a request may wait, and for
how long is a setting. Who works where is looked at once a second for all pools and all requests together.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import msgspec

from gateway.exchange import Interrupt
from infra.clock import Clock
from infra.faults import PortFault
from infra.metrics import Metrics
from infra.pool_ports import PoolMembers
from infra.repeated import Repeated

log = logging.getLogger(__name__)

LOOK_S = 1.0
# Requests asked about at the same time, when the grace of many ends at once.
CHECKS = 64


class Waiting(Protocol):
    """A request that may need encoders or decoders. Pools go by their topic."""

    def awaited(self) -> Collection[str]:
        """The pools that it has asked for something and may not have it from yet. Asked often: must be cheap."""
        ...

    async def still_awaits(self, pool: str) -> bool:
        """Whether something there is still to be done for it.

        Raises:
            Unavailable: nobody can say now.
        """
        ...


class _Guarded(msgspec.Struct, eq=False):
    waiting: Waiting
    interrupt: Interrupt
    since: dict[str, float] = {}  # pool without workers -> when the request was first seen waiting there


class MediaPools:
    """`wait_s`: how long a request may wait for a pool while nobody works there; 0 = until its deadline."""

    def __init__(
        self, pools: Sequence[str], members: PoolMembers, metrics: Metrics, clock: Clock, wait_s: float
    ) -> None:
        self._pools = pools
        self._members = members
        self._clock = clock
        self._wait_s = wait_s
        self._seen: dict[str, int] | None = None  # workers by pool; None: nobody can say
        self._guarded: set[_Guarded] = set()
        self._looking = Repeated(self.look, LOOK_S, "media pools")
        for pool in pools:
            metrics.count_workers_by(pool, partial(self._count, pool))

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def workers(self, pool: str) -> int | None:
        """How many work there; None while Redis does not tell."""
        return None if self._seen is None else self._seen[pool]

    async def start(self) -> None:
        await self._looking.start()

    async def close(self) -> None:
        await self._looking.close()

    @contextmanager
    def guarding(self, waiting: Waiting, interrupt: Interrupt) -> Iterator[None]:
        """Inside, the interrupt is fired when the request has waited for too long where nobody works."""
        one = _Guarded(waiting, interrupt)
        self._guarded.add(one)
        try:
            yield
        finally:
            self._guarded.discard(one)

    def _count(self, pool: str) -> float:
        workers = self.workers(pool)
        return math.nan if workers is None else workers

    async def look(self) -> None:
        """See who works where, and give up what has waited for too long."""
        try:
            found = await self._members.look(self._pools)
        except PortFault as error:
            if self._seen is not None:
                log.warning("cannot see who works in the pools: %s", error)
            self._seen = None
        else:
            self._seen = {pool: len(workers) for pool, workers in zip(self._pools, found, strict=True)}
        # While nobody can say who works, nobody waits in vain: time begins anew then.
        empty = frozenset(pool for pool, workers in (self._seen or {}).items() if not workers)
        if self._wait_s:
            limit = asyncio.Semaphore(CHECKS)
            await asyncio.gather(*(self._check(one, pool, limit) for one, pool in self._late(empty)))

    def _late(self, empty: frozenset[str]) -> list[tuple[_Guarded, str]]:
        """Whose patience has come to its end, and with which pool."""
        now = self._clock.monotonic()
        late: list[tuple[_Guarded, str]] = []
        for one in self._guarded:
            awaited = empty.intersection(one.waiting.awaited()) if empty else empty
            one.since = {pool: one.since.get(pool, now) for pool in awaited}
            late += [(one, pool) for pool, since in one.since.items() if now - since >= self._wait_s]
        return late

    async def _check(self, one: _Guarded, pool: str, limit: asyncio.Semaphore) -> None:
        """Workers may have gone after they had done what there was to do: only the request's own state tells."""
        try:
            async with limit:
                awaits = await one.waiting.still_awaits(pool)
        except PortFault as error:
            log.warning("cannot tell whether a request still waits for %s: %s", pool, error)
            return
        if awaits:
            one.interrupt.fire("pool_unavailable", pool)
        else:
            del one.since[pool]
