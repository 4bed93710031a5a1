"""Tasks that somebody else has started, watched so that none dies unseen."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any

log = logging.getLogger(__name__)


async def first_failure(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Returns when all have ended or been cancelled; raises what the first one that failed has raised.

    Being cancelled itself cancels none of them.
    """
    left = set(tasks)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()


def watched(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task that may end when it has done its work: should it fail, the log has why."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_failure)
    return task


def owned(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task for as long as its owner lives, which cancels it at the end: should it end before, somebody is told."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell)
    return task


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has failed", task.get_name(), exc_info=error)


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        log.critical("%s has ended, and nobody does its work now", task.get_name(), exc_info=task.exception())
