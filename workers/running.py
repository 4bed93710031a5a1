"""What attempts of every pool have in common: they can be stopped, and they do not give up on the result path."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from infra.patience import MENDED, patiently
from infra.ports import AppendState

StopCause = Literal["cancelled", "fenced", "cut", "broken"]
RETRY_S = 0.2

T = TypeVar("T")


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: for verbs that are harmless when repeated, as all of the result path are."""
    return await patiently(call, "result path", first_s=RETRY_S, waits_for=MENDED)


class Running:
    """A running attempt, as others may touch it: they can stop it, once, with a cause."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.cause: StopCause | None = None
        self.reason = ""
        self.begun = False  # set by those who register it before its claim

    def stop(self, cause: StopCause, reason: str = "") -> None:
        if self.cause is None and self._task is not None:
            self.cause, self.reason = cause, reason
            self._task.cancel()

    def heed(self, state: AppendState | Literal["broken"]) -> None:
        """What became of events that were not simply stored."""
        self.stop(state if state in ("cancelled", "broken") else "fenced")

    def uncancel(self) -> bool:
        """True when the cancellation just caught was ours, not the process's; takes it back."""
        if self.cause is None or self._task is None:
            return False
        self._task.uncancel()
        return True

    def finish(self) -> None:
        """From now on nothing can stop it: its last word is being written."""
        self._task = None
