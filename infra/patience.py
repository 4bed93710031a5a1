"""Waiting for a service that is away: the one way in which everybody asks again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from infra.faults import PortFault, Refused, Unavailable

log = logging.getLogger(__name__)

FIRST_S, MOST_S = 0.05, 2.0
# What waits for an operator, too: where giving up would lose answers for as long as somebody has the wrong credentials.
MENDED = (Unavailable, Refused)

T = TypeVar("T")
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Outage:
    """What a loop that asks again knows of the service it asks: for how long to wait, and what to tell the log.

    `failed` after each failure, `over` after each success; an outage is logged when it begins and when it is over, as
    "`what`: ...". The pause doubles up to `most_s`.
    """

    def __init__(
        self, what: str, *, first_s: float = FIRST_S, most_s: float = MOST_S, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._what = what
        self._first_s = self._pause_s = first_s
        self._most_s = most_s
        self._sleep = sleep
        self._failures = 0

    def noted(self, error: PortFault) -> None:
        """It has failed, and the loop has a pace of its own."""
        self._failures += 1
        if self._failures == 1:
            log.warning("%s: trying again until it works: %s", self._what, error)

    async def failed(self, error: PortFault) -> None:
        """It has failed; returns when it is time to ask again."""
        self.noted(error)
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._most_s)
        await self._sleep(pause_s)

    def over(self) -> None:
        if self._failures:
            log.info("%s: works again, after %d failures", self._what, self._failures)
        self._failures, self._pause_s = 0, self._first_s


async def patiently(
    call: Callable[[], Awaitable[T]],
    what: str,
    *,
    first_s: float = FIRST_S,
    most_s: float = MOST_S,
    sleep: Sleep = asyncio.sleep,
    waits_for: tuple[type[PortFault], ...] = (Unavailable,),
) -> T:
    """Ask until there is an answer: for calls that are harmless when repeated.

    For ever, so whoever calls it bounds it: by a request's deadline, or by the life of its process.

    Raises:
        Whatever `call` raises, other than `waits_for`.
    """
    outage = Outage(what, first_s=first_s, most_s=most_s, sleep=sleep)
    while True:
        try:
            answer = await call()
        except waits_for as error:
            await outage.failed(error)
        else:
            outage.over()
            return answer
