"""What steering has reserved on this worker is given back: prefill load at the first token, the rest at the end.

Giving back is harmless when repeated, so each part is asked for until Redis answers. What is never given back expires
with the request's deadline, or with this worker's life.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.patience import patiently
from schemas.jobs import GenerateJob

# After the first one, how long others may join it in one round trip.
GATHER_S = 0.02
# Each may be of a long prompt, and Redis serves nobody else while it gives one batch back.
AT_ONCE = 32
# While Redis is away; beyond this the oldest are left to expire.
MOST_WAITING = 20_000

# PrefixIndex.release: tickets at their first token, tickets at their end.
Release = Callable[[Sequence[str], Sequence[str]], Awaitable[int]]


class Reservations:
    """Of one worker. Jobs tell it what happens, in any order; its one task, `run`, tells the index."""

    def __init__(self, worker: str, release: Release, metrics: Metrics) -> None:
        self._worker = worker
        self._release = release
        self._metrics = metrics
        self._prefilling: set[str] = set()
        self._first_tokens: dict[str, None] = {}  # an ordered set
        self._ended: dict[str, None] = {}
        self._any = asyncio.Event()

    def began(self, job: GenerateJob) -> None:
        """It runs here. One that was meant for another worker will never be load there."""
        if job.placement is None:
            return
        if job.placement.worker == self._worker:
            self._prefilling.add(job.placement.ticket)
        else:
            self._metrics.misplaced(job.head.model)
            self.ended(job)

    def emitted(self, job: GenerateJob) -> None:
        """A token is out; only the first one matters."""
        if job.placement and job.placement.ticket in self._prefilling:
            self._prefilling.remove(job.placement.ticket)
            self._add(self._first_tokens, job.placement.ticket)

    def ended(self, job: GenerateJob) -> None:
        """It has its last event, belongs to somebody else or has been left: no load of this worker in any case."""
        if job.placement:
            self._prefilling.discard(job.placement.ticket)
            self._first_tokens.pop(job.placement.ticket, None)
            self._add(self._ended, job.placement.ticket)

    async def run(self) -> None:
        """Give back what waits, for ever."""
        while True:
            await self._any.wait()
            await asyncio.sleep(GATHER_S)
            await patiently(self.flush, "giving reservations back")

    async def flush(self) -> None:
        """Give back all that waits now. Raises Unavailable; what was not given back waits on."""
        self._any.clear()
        try:
            while self._first_tokens or self._ended:
                first_tokens, ended = list(islice(self._first_tokens, AT_ONCE)), list(islice(self._ended, AT_ONCE))
                await self._release(first_tokens, ended)
                for ticket in first_tokens:
                    self._first_tokens.pop(ticket, None)
                for ticket in ended:
                    self._ended.pop(ticket, None)
        except Unavailable:
            self._any.set()
            raise

    def _add(self, waiting: dict[str, None], ticket: str) -> None:
        if len(waiting) == MOST_WAITING:
            del waiting[next(iter(waiting))]
        waiting[ticket] = None
        self._any.set()
