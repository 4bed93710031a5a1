"""Reservations for jobs that never left: given back, or they would count as load of a worker that has nothing to do."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice

from infra.clock import Clock
from infra.patience import patiently

# A decision that was given up may still be on its way to Redis, behind the first release: so each is given back twice.
AGAIN_AFTER_S = 6.0
# Each may be of a long prompt, and Redis serves nobody else while it gives one batch back.
AT_ONCE = 32
# While Redis is away; beyond this the oldest are left to expire.
MOST_WAITING = 20_000

# PrefixIndex.release: tickets at their first token, tickets at their end. Harmless when repeated.
Release = Callable[[Sequence[str], Sequence[str]], Awaitable[int]]


class Releases:
    """Of one index. `give_back` may be called from anywhere in the loop's thread, `run` by one task."""

    def __init__(self, release: Release, clock: Clock) -> None:
        self._release = release
        self._clock = clock
        self._now: dict[str, None] = {}  # an ordered set
        self._again: deque[tuple[float, str]] = deque(maxlen=MOST_WAITING)  # monotonic time, ticket
        self._any = asyncio.Event()

    def give_back(self, ticket: str) -> None:
        """Returns at once."""
        if len(self._now) == MOST_WAITING:
            del self._now[next(iter(self._now))]
        self._now[ticket] = None
        self._again.append((self._clock.monotonic() + AGAIN_AFTER_S, ticket))
        self._any.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._due()
            while tickets := list(islice(self._now, AT_ONCE)):
                await patiently(partial(self._release, [], tickets), "reservations of jobs that were not sent")
                for ticket in tickets:
                    self._now.pop(ticket, None)

    async def _due(self) -> None:
        """Wait until something is to be given back, for the first time or again."""
        self._any.clear()
        now = self._clock.monotonic()
        while self._again and self._again[0][0] <= now:
            self._now[self._again.popleft()[1]] = None
        if self._now:
            return
        try:
            async with asyncio.timeout(self._again[0][0] - now if self._again else None):
                await self._any.wait()
        except TimeoutError:
            return
