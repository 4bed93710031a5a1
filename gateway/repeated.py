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
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self._what()
            except Exception:
                # The next round may go well; without one, this gateway would believe old news for ever.
                log.exception("%s failed", self._name)
