"""Waiting for a condition, with a bound: the only kind of waiting tests do."""

import asyncio
from collections.abc import Awaitable, Callable

Condition = Callable[[], bool | Awaitable[bool]]


async def until(condition: Condition, within_s: float = 10.0, every_s: float = 0.02) -> None:
    """Poll until the condition holds.

    Raises:
        TimeoutError: it did not hold within the bound.
    """
    async with asyncio.timeout(within_s):
        while True:
            held = condition()
            if await held if isinstance(held, Awaitable) else held:
                return
            await asyncio.sleep(every_s)
