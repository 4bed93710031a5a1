"""Queued jobs that would wait too long here go back to steering: topics/steering/handoff.py decides which."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

import msgspec

from infra.clock import Clock
from infra.faults import PortFault
from infra.metrics import Metrics
from infra.ports import Incarnation, Leases, PoolView
from infra.prefix_index import PrefixIndex
from schemas.jobs import GenerateJob
from schemas.manifest import Manifest
from schemas.steering import WorkerView
from topics.bus import Delivery, PartitionConsumer
from topics.steering.dispatch import Dispatcher
from topics.steering.handoff import Queued, give_back
from topics.steering.placer import living
from workers.job_queue import JobQueue

log = logging.getLogger(__name__)

EVERY_S = 0.5
# Over how many rounds the pace of beginnings is taken.
ROUNDS = 20


class HandOff:
    """One per worker; `run` it in a task. `bound_s`: how long a request may wait for its first token."""

    def __init__(
        self,
        me: Incarnation,
        manifest: Manifest,
        queue: JobQueue,
        consumer: PartitionConsumer,
        dispatcher: Dispatcher,
        leases: Leases,
        index: PrefixIndex,
        metrics: Metrics,
        clock: Clock,
        bound_s: float,
    ) -> None:
        self._me = me
        self._model = manifest.id
        self._partitions = manifest.partitions
        self._queue = queue
        self._consumer = consumer
        self._dispatcher = dispatcher
        self._leases = leases
        self._index = index
        self._metrics = metrics
        self._clock = clock
        self._bound_s = bound_s
        self._begun: deque[tuple[float, int]] = deque(maxlen=ROUNDS)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.once()
            except PortFault as error:
                log.warning("nothing is handed off now: %s", error)

    async def once(self) -> int:
        """Look at the queue once; returns how many jobs were given back.

        Raises:
            PortFault: Redis or the broker cannot say or take it now; the jobs stay here.
        """
        self._begun.append((self._clock.monotonic(), self._queue.begun))
        if not self._queue:
            return 0
        view = await self._leases.view(self._partitions)
        others = [one for one in living(view) if one != self._me]
        if not others:
            return 0
        seen = {one.worker: one for one in (await self._index.look([], [self._me, *others])).views}
        mine = seen.pop(str(self._me), None)
        if mine is None or not seen:
            return 0
        moving = self._decide(mine, list(seen.values()))
        for delivery in moving:
            await self._move(delivery, _without(view, self._me))
        return len(moving)

    def _decide(self, mine: WorkerView, others: Sequence[WorkerView]) -> list[Delivery]:
        waiting = {delivery.job.head.request_id: delivery for delivery in self._queue}
        queued = [self._queued(delivery.job) for delivery in waiting.values()]
        begun_tokens = max(0, mine.uncached_tokens - sum(one.uncached_tokens for one in queued))
        tickets = give_back(queued, begun_tokens, self._starts_per_s(), mine, others, self._bound_s)
        return [waiting[ticket] for ticket in tickets]

    def _queued(self, job: GenerateJob) -> Queued:
        tokens = len(job.prompt_ids)
        predicted, hops = (job.placement.predicted_tokens, job.placement.hops) if job.placement else (0, 0)
        waited_s = self._clock.now() - job.head.created_at
        return Queued(job.head.request_id, tokens, tokens - predicted, waited_s, hops)

    def _starts_per_s(self) -> float:
        (first_s, first), (last_s, last) = self._begun[0], self._begun[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0

    async def _move(self, delivery: Delivery, elsewhere: PoolView) -> None:
        """Send it on, then let go of it here: a crash between the two leaves two copies, and the claim picks one."""
        if not self._queue.remove(delivery):
            return
        job = delivery.job
        try:
            placed = await self._dispatcher.send(job, elsewhere, delivery.headers)
        except BaseException:
            self._queue.add(delivery)
            raise
        self._dispatcher.ended(placed)
        self._consumer.done(delivery)
        self._metrics.handed_off(self._model)
        if job.placement:
            await self._index.release([], [job.placement.ticket])
        log.info("%s handed to %s: %s", job.head.request_id, placed.worker, placed.choice.reason)


def _without(view: PoolView, me: Incarnation) -> PoolView:
    owners = {partition: owner for partition, owner in view.owners.items() if owner != me}
    return msgspec.structs.replace(view, owners=owners)
