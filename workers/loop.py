"""The one consume-handle-acknowledge loop of the LLM pool.

It alone takes jobs, claims requests, sends events and acknowledges. What it guarantees, whatever the handler does: a
claimed request ends in exactly one terminal event, or is given back so that another attempt can end it (promise P1).
"""

import asyncio
import logging

from infra.lifecycle import Deadline, Life
from infra.ports import Signals
from topics.bulkhead import Raised, contained
from topics.bus import Delivery, PartitionConsumer
from workers.attempt import Attempts, Outcome
from workers.engine_keeper import EngineKeeper
from workers.job_queue import JobQueue
from workers.outbox import Outbox

log = logging.getLogger(__name__)

# A request that a living worker runs is asked for again at this pace: its end, or its worker's, is then noticed.
BUSY_POLL_S = 0.5
# Jobs read ahead of the engine: enough to never let it wait and to hand some to an idle worker; the rest stays on the
# topic, where the next owner finds it.
READ_AHEAD = 16
# After the drain's deadline, how long the last events may take to be stored.
LAST_WORDS_S = 5.0


class Loop:
    """Runs until `life` stops, then drains within its deadline."""

    def __init__(
        self,
        model: str,
        slots: int,
        consumer: PartitionConsumer,
        signals: Signals,
        attempts: Attempts,
        keeper: EngineKeeper,
        outbox: Outbox,
        queue: JobQueue,
    ) -> None:
        self._model = model
        self._slots = slots
        self._consumer = consumer
        self._signals = signals
        self._attempts = attempts
        self._keeper = keeper
        self._outbox = outbox
        self._queue = queue
        self._jobs: set[asyncio.Task[None]] = set()
        self._parked = 0  # deliveries that wait for another worker's attempt; they need no engine slot
        self._freed = asyncio.Event()
        self._draining = False

    @property
    def running(self) -> int:
        return len(self._jobs) - self._parked

    async def run(self, life: Life) -> None:
        """Raises FencedOff (in a group) when a later life of this worker has begun."""
        async with asyncio.TaskGroup() as self._group:
            group = self._group
            helpers = [
                group.create_task(self._outbox.run()),
                group.create_task(self._keeper.run()),
                group.create_task(self._listen()),
                group.create_task(self._consumer.watch()),
            ]
            intake = group.create_task(self._take())
            await life.stopped()
            intake.cancel()
            await self._drain(life.deadline())
            for helper in helpers:
                helper.cancel()

    async def _take(self) -> None:
        while True:
            await self._keeper.ready()
            self._begin_jobs()
            room = self._slots - self.running + READ_AHEAD - len(self._queue)
            if room <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            for delivery in await self._consumer.take(room):
                self._queue.add(delivery)

    def _begin_jobs(self) -> None:
        """As many as there are slots for; none on an engine that is down, which would only cost them an attempt."""
        while self.running < self._slots and self._keeper.is_ready and not self._draining:
            if (delivery := self._queue.next()) is None:
                return
            if delivery.at.partition not in self._consumer.owned:
                continue  # the lease was lost while it waited; the new owner has read it again
            task = self._group.create_task(self._serve(delivery))
            self._jobs.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled():  # cancelled: the whole loop is on its way out
            self._slot_freed()

    def _slot_freed(self) -> None:
        self._freed.set()
        self._begin_jobs()

    async def _serve(self, delivery: Delivery) -> None:
        """Try until the request has ended, here or elsewhere; then let the offset go.

        A delivery that is left is not acknowledged: the partition's next owner reads it again.
        """
        while True:
            match await self._outcome(delivery):
                case "ended":
                    self._consumer.done(delivery)
                    return
                case "left":
                    return
                case "again":
                    await self._keeper.ready()
                case "busy":
                    if self._draining:
                        return
                    await self._park()

    async def _outcome(self, delivery: Delivery) -> Outcome:
        """A bulkhead: what a delivery raises ends its request, or makes a dead letter, and stops nothing else."""
        try:
            return await contained(self._attempts.make(delivery))
        except Raised as raised:
            error = raised.__cause__ or raised
            log.error("%s (request %s) failed", delivery.at, delivery.job.head.request_id, exc_info=error)
        try:
            await contained(self._attempts.give_up(delivery.job))
        except Raised as raised:
            log.error("%s could not even be ended", delivery.job.head.request_id, exc_info=raised)
            await self._consumer.set_aside(delivery, error)
            return "left"
        return "ended"

    async def _park(self) -> None:
        self._parked += 1
        self._slot_freed()
        try:
            await asyncio.sleep(BUSY_POLL_S)
        finally:
            self._parked -= 1

    async def _listen(self) -> None:
        async for signal in self._signals.listen(self._model):
            self._attempts.cancel(signal.request_id, signal.reason)

    async def _drain(self, deadline: Deadline) -> None:
        """Hand the partitions back first, so that others go on with what is queued; then finish what runs."""
        self._draining = True
        self._queue.clear()  # not begun, so not ours any more: the next owner reads them again
        await self._consumer.retire()
        if self._jobs:
            log.info("draining %d requests, at most %.0f s", len(self._jobs), deadline.left_s())
            await asyncio.wait(self._jobs, timeout=deadline.left_s())
        if self._jobs:
            log.warning("%d requests are cut short: the drain's time is over", len(self._jobs))
            self._attempts.cut_short()
            await asyncio.wait(self._jobs, timeout=LAST_WORDS_S)
        for job in self._jobs:
            job.cancel()
