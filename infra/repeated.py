"""Something that is done again and again, for as long as somebody lets it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from infra.faults import PortFault
from infra.patience import MENDED, Outage, Sleep

log = logging.getLogger(__name__)


async def regularly(
    do: Callable[[], Awaitable[object]], every_s: float, what: str, *, sleep: Sleep = asyncio.sleep
) -> NoReturn:
    """Do it now and then every so often, until cancelled. An outage is logged when it begins and when it is over.

    Raises:
        Whatever `do` raises, other than what an outage, or wrong credentials, make it raise.
    """
    outage = Outage(what)
    while True:
        try:
            await do()
        except MENDED as error:
            outage.noted(error)
        else:
            outage.over()
        await sleep(every_s)


class Repeated:
    """By a task of its own, until it is closed. Failures of any kind are logged and survived."""

    def __init__(self, do: Callable[[], Awaitable[None]], every_s: float, name: str) -> None:
        self._do = do
        self._every_s = every_s
        self._name = name
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Do it once, then go on. Raises what it raises the first time; later failures are logged."""
        await self._do()
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
        outage = Outage(self._name)
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._every_s
            try:
                await self._do()
            except PortFault as error:
                outage.noted(error)
            except Exception:
                # The next round may go well; without one, old news would be believed for ever.
                log.exception("%s failed", self._name)
            else:
                outage.over()
