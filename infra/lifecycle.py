"""Process life: startup, main, shutdown. A signal sets a flag; the drain has one deadline; a second signal forces."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from infra.clock import Clock, SystemClock

log = logging.getLogger(__name__)

FORCED_EXIT_CODE = 130


class Deadline:
    """One amount of time, spent by all the steps of a shutdown together."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def left_s(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())


class Life:
    """The stop flag of a process, and how long it may take to stop once it is set."""

    def __init__(self, drain_s: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._drain_s = drain_s
        self._stopping = asyncio.Event()
        self._deadline: Deadline | None = None

    def stop(self) -> None:
        """Begin to stop; harmless when repeated."""
        if self._deadline is None:
            self._deadline = Deadline(self._drain_s, self._clock)
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Wait for the flag."""
        await self._stopping.wait()

    async def unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """See `work` through, whatever it raises; False when the flag is set first, which cancels it. What it raises
        then is logged: the process is on its way out.
        """
        tasks = asyncio.create_task(work), asyncio.create_task(self.stopped())
        done = False
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done = tasks[0].done()
            if done:
                tasks[0].result()
            return done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if not done and not tasks[0].cancelled() and (error := tasks[0].exception()):
                log.warning("while stopping: %r", error)

    def deadline(self) -> Deadline:
        """What is left for the drain; a full one if nobody has asked to stop yet."""
        return self._deadline or Deadline(self._drain_s, self._clock)


@contextlib.asynccontextmanager
async def signals(
    life: Life, numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
) -> AsyncIterator[None]:
    """These signals set the flag; the second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def on_signal(name: str) -> None:
        if life.stopping:
            log.warning("second %s: not waiting for running work", name)
            os._exit(FORCED_EXIT_CODE)
        log.info("%s: draining", name)
        life.stop()

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
