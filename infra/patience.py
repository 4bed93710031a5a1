"""Waiting for a service that is away: the one way in which everybody asks again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from infra.faults import Unavailable

log = logging.getLogger(__name__)

FIRST_S, MOST_S = 0.05, 2.0

T = TypeVar("T")


async def patiently(
    call: Callable[[], Awaitable[T]], what: str, *, first_s: float = FIRST_S, most_s: float = MOST_S
) -> T:
    """Ask until there is an answer: for calls that are harmless when repeated. The pause doubles up to `most_s`.

    For ever, so whoever calls it bounds it: by a request's deadline, or by the life of its process. An outage is logged
    when it begins and when it is over, as "`what`: ...".

    Raises:
        Whatever `call` raises, other than Unavailable.
    """
    failures, pause_s = 0, first_s
    while True:
        try:
            answer = await call()
        except Unavailable as error:
            failures += 1
            if failures == 1:
                log.warning("%s: trying again until it works: %s", what, error)
        else:
            if failures:
                log.info("%s: works again, after %d failures", what, failures)
            return answer
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, most_s)
