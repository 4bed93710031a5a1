"""In-memory twins of the result path and of signals: one process, no services, the same semantics.

Twins that belong together share one MemoryHub. They keep what they are told for as long as they live: nothing expires.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Sequence

import msgspec

from infra import keys
from infra.ports import AppendState, Claim, ClaimState, Incarnation, Outgoing, Wish
from infra.subscription import Followed, Registry
from schemas.errors import TriptychError
from schemas.events import Cancelled, Event, EventBatch, Failed, Finished, Made, Terminal, Token
from schemas.jobs import Head
from schemas.signals import Cancel, Signal

SIGNAL_BACKLOG = 1_024


def _replay() -> deque[EventBatch]:
    return deque(maxlen=keys.REPLAY_MAX_ENTRIES)


class _Request(msgspec.Struct):
    """State and replay stream of one request."""

    attempt: int = 0
    owner: Incarnation | None = None
    last_seq: int = 0
    emitted: bool = False
    made: int = 0
    done: bool = False
    cancelled: bool = False
    stream: deque[EventBatch] = msgspec.field(default_factory=_replay)


class MemoryHub:
    """What Redis is to the real ones. `alive`: (model, worker) -> epoch of its living incarnation; `epochs`: of its
    latest one."""

    def __init__(self) -> None:
        self.alive: dict[tuple[str, str], int] = {}
        self.epochs: dict[tuple[str, str], int] = {}
        self.fresh_epochs = itertools.count(1)
        self.followers: dict[str, MemoryFollower] = {}
        self.listeners: dict[str, list[asyncio.Queue[Signal]]] = {}
        self._requests: dict[tuple[str, str], _Request] = {}

    def request(self, model: str, request_id: str) -> _Request:
        return self._requests.setdefault((model, request_id), _Request())

    def forget(self) -> None:
        """What a flush of Redis does to requests."""
        self._requests.clear()

    def is_alive(self, model: str, incarnation: Incarnation) -> bool:
        return self.alive.get((model, incarnation.worker)) == incarnation.epoch

    def store(self, request: _Request, head: Head, batch: EventBatch) -> None:
        """Append and publish."""
        last = batch.events[-1]
        request.stream.append(batch)
        request.last_seq = last.seq
        request.emitted |= any(isinstance(event, Token) for event in batch.events)
        request.made += sum(isinstance(event, Made) for event in batch.events)
        request.done |= isinstance(last, (Finished, Failed, Cancelled))
        if follower := self.followers.get(head.reply_to):
            follower.dispatch(batch)


class MemoryResults:
    """Results in one process."""

    def __init__(self, hub: MemoryHub) -> None:
        self._hub = hub

    async def claim(self, head: Head, by: Incarnation, max_attempts: int) -> Claim:
        request = self._hub.request(head.model, head.request_id)

        def answer(state: ClaimState) -> Claim:
            return Claim(state, request.attempt, request.last_seq, request.emitted, request.made)

        if request.done:
            return answer("done")
        if request.owner is not None and self._hub.is_alive(head.model, request.owner):
            return answer("busy")
        request.attempt += 1
        request.owner = by
        if request.cancelled or (head.parent and self._hub.request(head.model, head.parent).cancelled):
            return answer("cancelled")
        return answer("exhausted" if request.attempt > max_attempts else "mine")

    async def requeue(self, head: Head, attempt: int, by: Incarnation) -> None:
        request = self._hub.request(head.model, head.request_id)
        if (request.attempt, request.owner) == (attempt, by):
            request.owner = None

    async def append(self, outgoing: Sequence[Outgoing]) -> list[AppendState]:
        return [self._append_one(one.head, one.events) for one in outgoing]

    def _append_one(self, head: Head, events: list[Event]) -> AppendState:
        request = self._hub.request(head.model, head.request_id)
        batch = EventBatch(head.request_id, events)
        ends = isinstance(events[-1], (Finished, Failed, Cancelled))
        stored: AppendState = "cancelled" if request.cancelled and not ends else "stored"
        if request.attempt == 0 and not request.done:  # the hub has lost the state of a request that runs
            request.attempt, request.last_seq = events[0].attempt, events[0].seq - 1
        if request.attempt == 0 or events[0].attempt != request.attempt:
            return "fenced"
        if batch in request.stream:
            return stored
        if request.done:
            return "ended"
        if events[0].seq != request.last_seq + 1:
            return "fenced"
        self._hub.store(request, head, batch)
        return stored

    async def wishes(self, heads: Sequence[Head]) -> list[Wish]:
        return [self._wish(head) for head in heads]

    def _wish(self, head: Head) -> Wish:
        request = self._hub.request(head.model, head.request_id)
        if request.done:
            return "ended"
        stop = request.cancelled or self._hub.request(head.model, head.parent).cancelled
        return "cancelled" if stop else "wanted"

    async def end(self, head: Head, event: Terminal) -> bool:
        request = self._hub.request(head.model, head.request_id)
        if request.done:
            ours = msgspec.structs.replace(event, attempt=request.attempt, seq=request.last_seq)
            return request.stream[-1].events == [ours]
        ours = msgspec.structs.replace(event, attempt=request.attempt, seq=request.last_seq + 1)
        self._hub.store(request, head, EventBatch(head.request_id, [ours]))
        return True

    async def cancel(self, model: str, request_id: str, reason: str) -> None:
        request = self._hub.request(model, request_id)
        if request.done:
            return
        request.cancelled = True
        for queue in self._hub.listeners.get(model, ()):
            if not queue.full():  # signals are lossy; the flag is not
                queue.put_nowait(Cancel(request_id, reason))


class MemoryFollower:
    """Follower in one process. `hang_up` loses publications as a dropped connection does; `start` catches up."""

    def __init__(self, hub: MemoryHub, gateway_id: str) -> None:
        self._hub = hub
        self._gateway_id = gateway_id
        self._open = Registry()

    @property
    def connected(self) -> bool:
        return self._hub.followers.get(self._gateway_id) is self

    @property
    def following(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        self._hub.followers[self._gateway_id] = self
        for one in self._open:
            self._catch_up(one)

    def follow(self, model: str, request_id: str, after_seq: int = 0, *, begun: bool = False) -> Followed:
        one = Followed(model, request_id, after_seq, on_room=self._catch_up, on_close=self._open.discard)
        self._open.add(one)
        if after_seq > 0 or begun:
            self._catch_up(one)
        return one

    def hang_up(self) -> None:
        self._hub.followers.pop(self._gateway_id, None)

    async def close(self) -> None:
        self.hang_up()
        for one in self._open:
            one.close()

    def dispatch(self, batch: EventBatch) -> None:
        for one in self._open.of(batch.request_id):
            one.feed(batch.events)
            if one.missing and not one.full:
                self._catch_up(one)

    def _catch_up(self, one: Followed) -> None:
        one.may_hold_more = False
        stream = list(self._hub.request(one.model, one.request_id).stream)
        if (stream and stream[0].events[0].seq > one.next_seq) or (not stream and one.next_seq > 1):
            one.fail(TriptychError("replay_lost", "the rest of this answer is no longer kept"))
        for batch in stream:
            one.feed(batch.events)


class MemorySignals:
    """Signals in one process."""

    def __init__(self, hub: MemoryHub) -> None:
        self._hub = hub

    async def listen(self, model: str) -> AsyncGenerator[Signal]:
        queue: asyncio.Queue[Signal] = asyncio.Queue(SIGNAL_BACKLOG)
        listeners = self._hub.listeners.setdefault(model, [])
        listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            listeners.remove(queue)
