"""An engine's cache events on their way to the index: in order, in batches, gaps noticed, the engine never blocked."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from infra.clock import Clock
from infra.ports import Incarnation
from infra.prefix_index import KEY_BYTES, CacheEvent, PrefixIndex
from schemas.steering import WorkerView
from topics.steering.mirror import CacheMirror, Cleared, EngineEvent

log = logging.getLogger(__name__)

# An idle feed says so at this pace; the index gives up on one that is silent for longer than its bound.
IDLE_S = 0.5
RETRY_S = 0.2
# Rows expire after hours without a write; telling them again keeps those of a worker that stores nothing new.
REFRESH_S = 3_600.0
# What one batch may hold: it bounds how long the server is busy with it.
BATCH_KEYS = 2_048
# Waiting events beyond this are dropped and the index is told anew from the mirror: it is smaller.
MAX_PENDING = 20_000

# Asks the engine for its events from this number on. None: they are gone.
Replay = Callable[[int], Iterable[tuple[int, list[EngineEvent]]] | None]


class Feed:
    """One life of one worker. `heard` is called with every batch of the engine, in the order they come."""

    def __init__(
        self,
        index: PrefixIndex,
        me: Incarnation,
        worker: WorkerView,
        mirror: CacheMirror,
        clock: Clock,
        replay: Replay | None = None,
    ) -> None:
        self._index = index
        self._me = me
        self._worker = worker  # how to register: memory and a prior of the speed
        self._mirror = mirror
        self._clock = clock
        self._replay = replay
        self._refreshed_at = clock.monotonic()
        self._pending: deque[CacheEvent] = deque()
        self._heard = -1  # number of the engine's last batch
        self._number = 0  # of the last batch the index has taken
        self._anew = True  # the index does not know what we hold
        self._waiting = asyncio.Event()
        self.gaps = 0
        self.resyncs = 0

    @property
    def pending(self) -> int:
        """Events translated and not yet in the index."""
        return len(self._pending)

    def heard(self, number: int, events: Iterable[EngineEvent]) -> None:
        """Take a batch; returns at once. A number seen before is ignored, a missing one is asked for again."""
        if number <= self._heard:
            return
        if self._heard >= 0 and number > self._heard + 1:
            self.gaps += 1
            self._mend(number)
        if number > self._heard:
            self._take(number, events)

    async def run(self) -> None:
        """Until that name has a later life (returns) or cancelled. Redis may come, go and forget everything."""
        while True:
            try:
                if not await self._send() and not await self._begin():
                    log.info("%s has a later life: its feed ends", self._me)
                    return
            except ConnectionError as error:
                log.warning("index feed of %s: %s", self._me, error)
                await asyncio.sleep(RETRY_S)

    async def _begin(self) -> bool:
        """The index does not know us: it lost its data, thought us dead, or we are new. False when we are over."""
        while (answer := await self._index.register(self._me, self._worker)) == "full":
            if not await self._index.clean():
                log.warning("the prefix index has no slot left for %s", self._me)
                await asyncio.sleep(IDLE_S)
        self._anew = True
        return answer == "registered"

    def _mend(self, number: int) -> None:
        """Fill the hole before batch `number`, or begin from nothing."""
        missed = self._replay(self._heard + 1) if self._replay else None
        if missed is None:
            self._take(number - 1, [Cleared()])
            return
        for one, events in missed:
            if one == self._heard + 1:
                self._take(one, events)
        if self._heard < number - 1:
            self._take(number - 1, [Cleared()])

    def _take(self, number: int, events: Iterable[EngineEvent]) -> None:
        self._heard = number
        for event in events:
            translated = self._mirror.translate(event)
            if translated is not None:
                self._pending.append(translated)
        if len(self._pending) > MAX_PENDING:
            self._anew = True
            self._pending.clear()
        self._waiting.set()

    async def _send(self) -> bool:
        """One batch, or word that there is none. False when the index does not know us."""
        if self._anew:
            return await self._tell_anew()
        if self._clock.monotonic() - self._refreshed_at > REFRESH_S:
            self._refreshed_at = self._clock.monotonic()
            self._pending.extend(self._mirror.snapshot(BATCH_KEYS))
        if not self._pending:
            await self._idle()
        batch = self._next_batch()
        answer = await self._index.apply(self._me, self._number + 1, batch)
        if answer == "gap":
            self._anew = True
        elif answer != "over":
            self._number += 1
            self._drop(len(batch))
        return answer != "over"

    def _next_batch(self) -> list[CacheEvent]:
        batch: list[CacheEvent] = []
        size = 0
        for event in self._pending:
            size += len(event.block_keys) // KEY_BYTES
            if batch and size > BATCH_KEYS:
                break
            batch.append(event)
        return batch

    async def _tell_anew(self) -> bool:
        """Have it forget what it thinks of us, then tell it all we hold."""
        if await self._index.apply(self._me, 0, [CacheEvent("c")]) == "over":
            return False
        self.resyncs += 1
        self._number = 0
        self._anew = False
        self._pending = deque(self._mirror.snapshot(BATCH_KEYS))
        return True

    async def _idle(self) -> None:
        self._waiting.clear()
        try:
            async with asyncio.timeout(IDLE_S):
                await self._waiting.wait()
        except TimeoutError:
            return

    def _drop(self, count: int) -> None:
        """What came while the batch was under way stays; after an overflow there is nothing left to drop."""
        for _ in range(min(count, len(self._pending))):
            self._pending.popleft()
