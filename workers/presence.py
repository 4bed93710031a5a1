"""This worker's life in the prefix index: begun, fed from the engine, reported on, ended; and others' tidied up."""

import asyncio
import logging

from infra.clock import Clock
from infra.faults import PortFault
from infra.metrics import Metrics
from infra.ports import Incarnation
from infra.prefix_index import PrefixIndex
from infra.repeated import regularly
from schemas.steering import WorkerView
from topics.steering.namespaces import KeySpace
from workers.block_map import BlockMap
from workers.engine import Engine
from workers.feed import Feed
from workers.job_queue import JobQueue
from workers.reservations import Reservations

log = logging.getLogger(__name__)

REPORT_S = 0.5
# Who looks first does it for all.
SWEEP_S = 1.0
# Rounds of cleaning in a row; a busy index is left alone in between.
CLEANS_AT_ONCE = 8


class Presence:
    """Build it when the engine has started: only then is the size of its cache known."""

    def __init__(
        self,
        index: PrefixIndex,
        space: KeySpace,
        me: Incarnation,
        engine: Engine,
        queue: JobQueue,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._index = index
        self._me = me
        self._engine = engine
        self._queue = queue
        self._block_tokens = space.block_tokens
        blocks = BlockMap(space.block_tokens, space.plain)
        self._feed = Feed(index, space.model, me, self._view, blocks, metrics, clock)
        metrics.watch_feed_by(space.model, lambda: self._feed.lag_s, lambda: blocks.orphans)
        self.reservations = Reservations(me.worker, index.release, metrics)

    async def run(self) -> None:
        """Until cancelled. Redis may come, go and forget everything."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed.run())
            group.create_task(self._feed.listen(self._engine.cache_events()))
            group.create_task(self.reservations.run())
            group.create_task(regularly(self._report, REPORT_S, "reporting to the prefix index"))
            group.create_task(regularly(self._sweep, SWEEP_S, "tidying up the prefix index"))

    async def close(self) -> None:
        """End this life: nobody steers here any more, and nothing counts as load of it."""
        try:
            await self._index.retire(self._me)
        except PortFault as error:
            log.warning("could not leave the prefix index, others will see to it: %s", error)

    def _view(self) -> WorkerView:
        cache, load = self._engine.cache, self._engine.load()
        total = cache.total_blocks * cache.block_tokens // self._block_tokens
        return WorkerView(
            self._me.worker,
            total_blocks=total,
            unused_blocks=round(load.kv_unused * total),
            referenced_blocks=round(load.kv_usage * total),
            waiting=load.waiting + len(self._queue),
            running=load.running,
            prefill_tokens_per_s=load.speed.prefill_tokens_per_s,
            step_per_sequence_s=load.speed.step_per_sequence_s,
            step_base_s=load.speed.step_base_s,
        )

    async def _report(self) -> None:
        await self._index.report(self._me, self._view())

    async def _sweep(self) -> None:
        """A life that is over counts for nothing at once; only its rows have to go, some at a time."""
        ended = await self._index.sweep(SWEEP_S)
        if ended is None:
            return
        if ended:
            log.info("%d lives whose lease is gone have left the prefix index", ended)
        for _ in range(CLEANS_AT_ONCE):
            if not await self._index.clean():
                return
