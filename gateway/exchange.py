"""One HTTP exchange seen from outside: what may end it early, and how many there are."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self

from litestar.types import Receive

from schemas.errors import TriptychError

Cause = Literal["deadline", "gone", "stopping", "pool_unavailable"]

# What a client is told when there are too many open requests: by then, streams have ended.
RETRY_AFTER_S = 1
# ... and when nobody works in a pool: somebody has to start first.
POOL_RETRY_AFTER_S = 10


class Interrupted(Exception):
    """The deadline has passed, the client has gone, this gateway stops, or nobody works in a pool (`about`)."""

    def __init__(self, cause: Cause, about: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.about = about

    @property
    def error(self) -> TriptychError:
        """What the client is told."""
        match self.cause:
            case "deadline":
                return TriptychError(
                    "deadline_exceeded", "The request's deadline passed before its answer was complete."
                )
            case "gone":
                return TriptychError("cancelled", "The client has gone.")
            case "stopping":
                message = "The gateway is shutting down; please try again."
                return TriptychError("overloaded", message, retry_after_s=RETRY_AFTER_S)
            case "pool_unavailable":
                message = f"Nobody works in the pool {self.about!r}, which this request needs; please try again later."
                return TriptychError("pool_unavailable", message, retry_after_s=POOL_RETRY_AFTER_S)


class Interrupt:
    """Ends whatever is awaited inside of it, once: after `after_s`, or when it is fired.

    Raises:
        Interrupted: on leaving, with the cause.
    """

    def __init__(self, after_s: float) -> None:
        self._timer = asyncio.timeout(after_s)
        self._why = Interrupted("deadline")
        self._inside = False

    async def __aenter__(self) -> Self:
        await self._timer.__aenter__()
        self._inside = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False
        try:
            await self._timer.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._why from None

    def fire(self, cause: Cause, about: str = "") -> None:
        """Nothing happens when the inside has been left, or is being left, already."""
        if self._inside and not self._timer.expired():
            self._why = Interrupted(cause, about)
            self._timer.reschedule(0)  # a moment in the past: at once


async def watch(receive: Receive, interrupt: Interrupt) -> None:
    """Fire when the client goes away. Also returns after the response's last byte, when there is nothing to fire."""
    while (await receive())["type"] != "http.disconnect":
        pass
    interrupt.fire("gone")


class OpenRequests:
    """The requests that this gateway is reading or answering right now, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places = 0
        self._interrupts: set[Interrupt] = set()

    def __len__(self) -> int:
        return self._places

    def enter(self) -> None:
        """Take a place, to be left again. Raises TriptychError: rate_limited, when there is none."""
        if self._places >= self._most:
            raise TriptychError(
                "rate_limited", f"This gateway has {self._most} open requests.", retry_after_s=RETRY_AFTER_S
            )
        self._places += 1

    def leave(self) -> None:
        self._places -= 1

    @contextmanager
    def entered(self, interrupt: Interrupt) -> Iterator[None]:
        """An admitted one is being answered, and `interrupt_all` reaches it."""
        self._interrupts.add(interrupt)
        try:
            yield
        finally:
            self._interrupts.discard(interrupt)

    def interrupt_all(self, cause: Cause) -> None:
        for interrupt in list(self._interrupts):
            interrupt.fire(cause)
