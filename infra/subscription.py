"""What a follower keeps per request: which event comes next, and the few that wait for the reader. No IO, no task."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from schemas.errors import TriptychError
from schemas.events import Cancelled, Event, Failed, Finished

# A reader that lags further behind gets the rest from the stream later: the backlog lives in Redis, not here.
BUFFER_EVENTS = 256


class Followed:
    """One followed request; keeps to ports.Subscription. Publications and stream entries are both given to `feed`.

    [1 .. read by the client | buffer | next_seq .. gap .. | aside | .. seen]; whatever is not here is in the stream.
    `on_room` is called when a reader that lagged has room again, `on_close` once, when nothing more can be fed.
    """

    __slots__ = (
        "_aside",
        "_buffer",
        "_ended",
        "_failure",
        "_on_close",
        "_on_room",
        "_waiter",
        "heard_at",
        "may_hold_more",
        "model",
        "next_seq",
        "request_id",
        "seen",
    )

    def __init__(
        self,
        model: str,
        request_id: str,
        after_seq: int,
        *,
        on_room: Callable[["Followed"], None],
        on_close: Callable[["Followed"], None],
        heard_at: float = 0.0,
    ) -> None:
        self.model = model
        self.request_id = request_id
        self.next_seq = after_seq + 1
        self.heard_at = heard_at  # monotonic seconds, when something last came or was looked for
        self.seen = after_seq  # the highest seq known to exist
        self.may_hold_more = False  # the stream, beyond what was read of it
        self._buffer: deque[Event] = deque()
        self._aside: list[Event] = []  # beyond a gap
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._failure: TriptychError | None = None
        self._on_room = on_room
        self._on_close = on_close

    @property
    def ended(self) -> bool:
        """Nothing will be fed any more; what is buffered can still be read."""
        return self._ended

    @property
    def missing(self) -> bool:
        """Events are known that have not come and, being published only once, will not: the stream has them."""
        return self.next_seq <= self.seen and not self._ended

    @property
    def behind(self) -> bool:
        """Looking into the stream may help."""
        return self.missing or (self.may_hold_more and not self._ended)

    @property
    def full(self) -> bool:
        return len(self._buffer) >= BUFFER_EVENTS

    def feed(self, events: Sequence[Event]) -> None:
        """Take what continues here. Duplicates are dropped; what lies beyond a gap is kept aside until it is filled."""
        if self._ended:
            return
        self.seen = max(self.seen, events[-1].seq)
        self._take(events)
        if self._aside and self._aside[0].seq <= self.next_seq:
            aside, self._aside = self._aside, []
            self._take(aside)
        if self._buffer or self._ended:
            self._wake()

    def _take(self, events: Sequence[Event]) -> None:
        for at, event in enumerate(events):
            if self.full:
                self.may_hold_more = True
                return
            if event.seq > self.next_seq:
                self._aside.extend(events[at : at + BUFFER_EVENTS - len(self._aside)])
                return
            if event.seq == self.next_seq:
                self._buffer.append(event)
                self.next_seq += 1
            if isinstance(event, (Finished, Failed, Cancelled)):
                self._end()

    def fail(self, error: TriptychError) -> None:
        """The reader gets this error after what has been buffered."""
        if not self._ended:
            self._failure = error
            self._end()
            self._wake()

    def close(self) -> None:
        self._buffer.clear()
        self._aside.clear()
        self._end()
        self._wake()

    def ready(self) -> list[Event]:
        events = list(self._buffer)
        self._buffer.clear()
        self._ask_for_more()
        return events

    def __aiter__(self) -> "Followed":
        return self

    async def __anext__(self) -> Event:
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._buffer.popleft()
        self._ask_for_more()
        return event

    def _ask_for_more(self) -> None:
        if self.may_hold_more and len(self._buffer) <= BUFFER_EVENTS // 2:
            self._on_room(self)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._on_close(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Registry:
    """The open subscriptions of one gateway; a request may have several (a client that came back too early)."""

    def __init__(self) -> None:
        self._by_request: dict[str, list[Followed]] = {}

    def add(self, one: Followed) -> None:
        self._by_request.setdefault(one.request_id, []).append(one)

    def discard(self, one: Followed) -> None:
        # A new list, because the old one may be in the middle of an iteration.
        rest = [other for other in self.of(one.request_id) if other is not one]
        if rest:
            self._by_request[one.request_id] = rest
        else:
            self._by_request.pop(one.request_id, None)

    def of(self, request_id: str) -> Sequence[Followed]:
        return self._by_request.get(request_id, ())

    def __iter__(self) -> Iterator[Followed]:
        """A snapshot: subscriptions may end while it is walked."""
        return iter([one for ones in self._by_request.values() for one in ones])

    def __len__(self) -> int:
        return sum(map(len, self._by_request.values()))
