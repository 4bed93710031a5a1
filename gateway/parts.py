"""A request and the parts of its answer, which decoders make, followed as one stream.

A part is a request of its own. The order promised here: events of the request as they come; pieces of parts of one
kind in the order of the parts, whichever is ready first, and never before the `Part` they belong to; the terminal event
after everything else. Text does not wait for media. A part that does not finish is the end of the whole answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from gateway.delivery import Piece, Told
from infra.faults import PortFault
from infra.ports import Subscription
from schemas.errors import TriptychError
from schemas.events import Cancelled, Event, Failed, Finished, Made, Part, Progress, Restarted, Terminal

log = logging.getLogger(__name__)

# A client that reads slowly holds up the reading of the streams, not this gateway's memory.
QUEUED = 64
CANCEL_WITHIN_S = 1.0


class Backing(Protocol):
    """What following parts takes from its surroundings."""

    def follow(self, part: Part) -> Subscription: ...

    async def deliver(self, part: Part, made: Made) -> Piece:
        """Raises TriptychError: it cannot be had."""
        ...

    async def cancel(self, request_id: str, reason: str) -> None:
        """Raises Unavailable when Redis does not take it."""
        ...

    async def heard(self, event: Event) -> None:
        """Called with every event of the request itself, before the reader gets it."""
        ...


class _Open:
    """A part that is being followed."""

    def __init__(self, part: Part, before: asyncio.Event) -> None:
        self.part = part
        self.before = before  # set when all pieces of the part before it have been passed on
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Parts:
    """One answer's stream; use as a context. On leaving, parts that still run are cancelled."""

    def __init__(self, request_id: str, main: Subscription, backing: Backing) -> None:
        self._request_id = request_id
        self._main = main
        self._backing = backing
        self._queue: asyncio.Queue[Told | None] = asyncio.Queue(QUEUED)  # None: no more, for the reason in `_failure`
        self._failure: Exception | None = None
        self._open: dict[tuple[int, int], _Open] = {}  # by choice and number
        self._last: dict[tuple[int, str], asyncio.Event] = {}  # `over` of the last part of each choice and kind
        self._told_all = False  # the end, or None, is in the queue
        self._read_all = False  # ... and has been read
        self._main_over = False
        self._part_lost = False
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        name = f"parts of {self._request_id}"
        self._pump = asyncio.create_task(self._guarded(self._follow_main), name=name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._told_all = True
        if self._pump is not None:
            await _stop([self._pump])
        await self._drop(list(self._open.values()), "its answer has ended")
        if self._part_lost and not self._main_over:
            await self._cancel([self._request_id], "a part of its answer was lost")

    @property
    def open(self) -> list[Part]:
        """Those that are not complete yet, or have not been passed on."""
        return [one.part for one in self._open.values()]

    async def __anext__(self) -> Told:
        """As ports.Subscription.__anext__, with the pieces of all parts."""
        if self._read_all:
            raise self._failure or StopAsyncIteration
        return self._handed(await self._queue.get())

    def ready(self) -> list[Told]:
        """What else has arrived already."""
        found: list[Told] = []
        while not self._read_all and not self._queue.empty():
            told = self._queue.get_nowait()
            if told is None:
                self._queue.put_nowait(None)
                break
            found.append(self._handed(told))
        return found

    def _handed(self, told: Told | None) -> Told:
        self._read_all = told is None or isinstance(told, Finished | Failed | Cancelled)
        if told is None:
            raise self._failure or StopAsyncIteration
        return told

    def cut(self, event: Terminal) -> None:
        """Tell this end now, and nothing in between; unless the end has come already and only waits to be read."""
        if not self._told_all:
            self._told_all = True
            self._clear()
            self._queue.put_nowait(event)

    async def _follow_main(self) -> None:
        async for event in self._main:
            await self._backing.heard(event)
            match event:
                case Part():
                    await self._put(event)
                    await self._begin(event)
                case Restarted():
                    await self._drop(list(self._open.values()), "a new attempt starts over")
                    await self._put(event)
                case Finished():
                    self._main_over = True
                    await self._parts_over()
                    await self._end(event)
                case Failed() | Cancelled():
                    self._main_over = True
                    await self._end(event)
                case _:
                    await self._put(event)
        self._tell_no_more(None)

    async def _begin(self, part: Part) -> None:
        key = (part.index, part.number)
        if (older := self._open.get(key)) is not None:
            # Its attempt was lost between saying so and asking for it; this one takes its place.
            await self._drop([older], "another attempt makes this part")
        before = self._last.get((part.index, part.kind)) or _already()
        one = self._open[key] = _Open(part, before)
        self._last[part.index, part.kind] = one.over
        one.task = asyncio.create_task(self._guarded(partial(self._follow_part, one)), name=f"part {part.request_id}")

    async def _follow_part(self, one: _Open) -> None:
        with closing(self._backing.follow(one.part)) as events:
            last = await self._pass_on(one, events)
        if isinstance(last, Finished):
            await one.before.wait()
        else:
            self._part_lost = True
            await self._end(last)
        one.over.set()
        self._open.pop((one.part.index, one.part.number), None)

    async def _pass_on(self, one: _Open, events: Subscription) -> Terminal:
        passed_on = -1
        async for event in events:
            match event:
                case Made() if event.number > passed_on:  # a new attempt may make the first ones again
                    piece = await self._backing.deliver(one.part, event)
                    await one.before.wait()
                    await self._put(piece)
                    passed_on = event.number
                case Progress():
                    self._mention(event)
                case Finished() | Failed() | Cancelled():
                    return event
                case _:
                    pass
        raise TriptychError("internal", "A part of the answer stopped without an end.")

    async def _parts_over(self) -> None:
        while tasks := [one.task for one in self._open.values() if one.task is not None]:
            await asyncio.wait(tasks)
            if self._told_all:
                return

    async def _put(self, told: Told) -> None:
        if not self._told_all:
            await self._queue.put(told)

    async def _end(self, event: Terminal) -> None:
        if not self._told_all:
            self._told_all = True
            await self._queue.put(event)

    def _mention(self, event: Progress) -> None:
        """News of long work: the next one tells more, so it is never waited with."""
        if not self._told_all and not self._queue.full():
            self._queue.put_nowait(event)

    async def _guarded(self, following: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong in it, the reader is told."""
        try:
            await following()
        except Exception as error:  # noqa: BLE001  # it is raised in the reader's task
            self._tell_no_more(error)

    def _tell_no_more(self, failure: Exception | None) -> None:
        if not self._told_all:
            self._told_all, self._failure = True, failure
            self._clear()
            self._queue.put_nowait(None)

    async def _drop(self, parts: Iterable[_Open], reason: str) -> None:
        """Nothing of them is passed on any more, and nobody works for them."""
        parts = list(parts)
        await _stop([one.task for one in parts if one.task is not None])
        for one in parts:
            one.over.set()
            self._open.pop((one.part.index, one.part.number), None)
        await self._cancel([one.part.request_id for one in parts], reason)

    async def _cancel(self, request_ids: list[str], reason: str) -> None:
        if not request_ids:
            return
        try:
            async with asyncio.timeout(CANCEL_WITHIN_S):
                await asyncio.gather(*(self._backing.cancel(one, reason) for one in request_ids))
        except (PortFault, TimeoutError) as error:
            # They stop at the deadline then.
            log.warning("parts of %s could not be cancelled: %s", self._request_id, error or "no answer in time")

    def _clear(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()


def _already() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
