"""Something that is done again and again by one task, until it is closed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class Repeated:
    def __init__(self, what: Callable[[], Awaitable[None]], every_s: float, name: str) -> None:
        self._what = what
        self._every_s = every_s
        self._name = name
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Do it once, then go on. Raises what it raises the first time; later failures are logged."""
        await self._what()
        self._go_on(self._every_s)

    def begin(self) -> None:
        """Go on at once, without waiting for the first time; all failures are logged."""
        self._go_on(0)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _go_on(self, first_in_s: float) -> None:
        self._task = asyncio.create_task(self._run(first_in_s), name=self._name)

    async def _run(self, wait_s: float) -> None:
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._every_s
            try:
                await self._what()
            except Exception:
                # The next round may go well; without one, old news would be believed for ever.
                log.exception("%s failed", self._name)
