"""What one record raises stays with that record."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Raised(Exception):
    """Whatever came out of it, as `__cause__`."""


async def contained(work: Awaitable[T]) -> T:
    """Await it.

    Raises:
        Raised: it raised anything, a cancellation that nobody has asked for included.
        CancelledError: the calling task is to stop.
    """
    try:
        return await work
    except Exception as error:
        raise Raised(repr(error)) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Raised("cancelled from inside") from error
