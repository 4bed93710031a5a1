"""An engine's cache events on their way to the index: in order, in batches, never holding up the engine."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from itertools import groupby, islice
from typing import Literal

import msgspec

from infra.clock import Clock
from infra.metrics import Metrics
from infra.patience import patiently
from infra.ports import Incarnation
from infra.prefix_index import CacheEvent, PrefixIndex
from schemas.steering import WorkerView
from workers.block_map import BlockMap
from workers.engine import CacheBatch, Cleared

log = logging.getLogger(__name__)

# After the first change, how long others may join it in one batch.
GATHER_S = 0.02
# An idle feed says so at this pace; the index gives up on one that is silent for longer than its bound.
IDLE_S = 0.5
# Rows expire after hours without a write; telling them again keeps those of a worker that stores nothing new.
REFRESH_S = 3_600.0
# What one batch may hold: it bounds how long the server is busy with it.
BATCH_KEYS = 2_048
# Waiting changes beyond this are dropped and the index is told anew from the map: it is smaller.
MAX_PENDING = 100_000


class _Pending(msgspec.Struct, frozen=True, gc=False):
    kind: Literal["s", "r", "c"]  # as in CacheEvent
    key: bytes
    at: float  # when it was heard, monotonic


class Feed:
    """One life of one worker in the index of one model."""

    def __init__(
        self,
        index: PrefixIndex,
        model: str,
        me: Incarnation,
        worker: Callable[[], WorkerView],
        blocks: BlockMap,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._index = index
        self._model = model
        self._me = me
        self._worker = worker  # how to register: what it would report now
        self._blocks = blocks
        self._metrics = metrics
        self._clock = clock
        self._refreshed_at = clock.monotonic()
        self._pending: deque[_Pending] = deque()
        self._number = 0  # of the last batch the index has taken
        self._under_way: int | None = None  # changes in the next batch, once it has been sent: a retry must be the same
        self._anew = True  # the index does not know what we hold
        self._changed = asyncio.Event()
        self.resyncs = 0  # how often the index has been told everything

    @property
    def pending(self) -> int:
        """Changes that are not in the index yet."""
        return len(self._pending)

    @property
    def lag_s(self) -> float:
        """Age of the oldest change that is not in the index yet."""
        return self._clock.monotonic() - self._pending[0].at if self._pending else 0.0

    async def listen(self, batches: AsyncGenerator[CacheBatch]) -> None:
        """Hear everything the engine says, to its end."""
        async with aclosing(batches):
            async for batch in batches:
                self.heard(batch)

    def heard(self, batch: CacheBatch) -> None:
        """Take a batch; returns at once."""
        now = self._clock.monotonic()
        if batch.gap:
            self._metrics.feed_gap(self._model)
            log.warning("%s: cache events are lost; the index forgets what this worker held", self._me)
            self._clear(now)
        for event in batch.events:
            if isinstance(event, Cleared):
                self._clear(now)
            else:
                changes = self._blocks.changes(event)
                self._pending.extend(_Pending("s" if there else "r", key, now) for there, key in changes)
        for reason, count in self._blocks.take_skipped().items():
            self._metrics.blocks_skipped(self._model, reason, count)
        if len(self._pending) > MAX_PENDING:
            self._anew = True
            self._pending.clear()
        self._changed.set()

    async def run(self) -> None:
        """Until that name has a later life (returns) or cancelled. Redis may come, go and forget everything."""
        while await patiently(self._turn, f"index feed of {self._me}"):
            pass
        log.info("%s has a later life: its feed ends", self._me)

    async def _turn(self) -> bool:
        """Send what there is. False when that name has a later life."""
        return await self._send() or await self._begin()

    async def _begin(self) -> bool:
        """The index does not know us: it lost its data, thought us dead, or we are new. False when we are over."""
        while (answer := await self._index.register(self._me, self._worker())) == "full":
            if not await self._index.clean():
                log.warning("the prefix index has no slot left for %s", self._me)
                await asyncio.sleep(IDLE_S)
        self._anew = True
        return answer == "registered"

    def _clear(self, now: float) -> None:
        self._blocks.clear()
        self._pending.append(_Pending("c", b"", now))

    async def _send(self) -> bool:
        """One batch, or word that there is none. False when the index does not know us."""
        if self._anew:
            return await self._tell_anew()
        now = self._clock.monotonic()
        if now - self._refreshed_at > REFRESH_S:
            self._refreshed_at = now
            self._tell_all(now)
        if self._under_way is None:
            await self._gather()
            self._under_way = min(len(self._pending), BATCH_KEYS)
        events = _merged(islice(self._pending, self._under_way))
        answer = await self._index.apply(self._me, self._number + 1, events)
        if answer == "gap":
            self._anew = True
        elif answer != "over":
            self._sent()
        return answer != "over"

    def _sent(self) -> None:
        """What came while the batch was under way stays; after an overflow there is nothing left to drop."""
        self._number += 1
        for _ in range(min(self._under_way or 0, len(self._pending))):
            self._pending.popleft()
        self._under_way = None

    async def _tell_anew(self) -> bool:
        """Have it forget what it thinks of us, then tell it all we hold."""
        if await self._index.apply(self._me, 0, [CacheEvent("c")]) == "over":
            return False
        self.resyncs += 1
        self._number, self._under_way = 0, None
        self._anew = False
        self._pending.clear()
        self._tell_all(self._clock.monotonic())
        return True

    def _tell_all(self, now: float) -> None:
        self._pending.extend(_Pending("s", key, now) for key in self._blocks.keys)

    async def _gather(self) -> None:
        """Wait for a change, and a moment for more; or until it is time to say that there is none."""
        self._changed.clear()
        try:
            async with asyncio.timeout(IDLE_S):
                while not self._pending:
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            return
        if len(self._pending) < BATCH_KEYS:
            await asyncio.sleep(GATHER_S)


def _merged(changes: Iterable[_Pending]) -> list[CacheEvent]:
    """As few events as keep the order."""
    return [CacheEvent(kind, b"".join(one.key for one in run)) for kind, run in groupby(changes, lambda one: one.kind)]
