"""Jobs on their way out: who serves which model right now, which worker gets the next job, and the send itself."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.ports import Leases, PoolView
from infra.repeated import Repeated
from schemas.jobs import GenerateJob
from topics import names
from topics.bus import Producer
from topics.headers import Headers
from topics.steering.placer import Placed, Placer

log = logging.getLogger(__name__)

REFRESH_S = 0.25
# A view that could not be refreshed for so long says nothing any more about who is alive.
STALE_AFTER_S = 5.0

_NOBODY = PoolView(owners={}, beats={})


class Pool:
    """The workers of one model, as seen from this gateway."""

    def __init__(self, model: str, partitions: int, leases: Leases, producer: Producer, placer: Placer) -> None:
        self.model = model
        self._topic = names.generate(model)
        self._partitions = partitions
        self._leases = leases
        self._producer = producer
        self._placer = placer
        self._view = _NOBODY
        self._failures = 0
        self._sent: Counter[str] = Counter()  # to each worker, by this gateway, and not yet ended

    @property
    def workers(self) -> int:
        """How many live workers own partitions."""
        return len({owner.worker for owner in self._view.owners.values()} & self._view.beats.keys())

    def count(self) -> float:
        """As `workers`, for a metric."""
        return self.workers

    @property
    def engine(self) -> str:
        """What runs the model: the engine's name, or several joined by "+"; empty when nobody is there."""
        return "+".join(sorted({beat.engine for beat in self._view.beats.values()}))

    async def refresh(self) -> None:
        """Look again. When that fails, what was seen before holds for a while."""
        try:
            self._view = await self._leases.view(self._partitions)
            self._failures = 0
        except Unavailable as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("cannot see the workers of %s: %s", self.model, error)
            if self._failures * REFRESH_S >= STALE_AFTER_S:
                self._view = _NOBODY

    @asynccontextmanager
    async def sent(self, job: GenerateJob, headers: Headers, session: str = "") -> AsyncIterator[Placed]:
        """Send the job to the worker that steering chooses; it counts as that worker's load while inside.

        Raises:
            TriptychError: overloaded, when the broker does not take it in time.
        """
        placed = await self._placer.place(job, self._view, self._sent, session)
        self._sent[placed.worker] += 1
        try:
            key = job.head.request_id.encode()
            await self._producer.send(self._topic, placed.job, partition=placed.partition, key=key, headers=headers)
            yield placed
        finally:
            self._sent[placed.worker] -= 1

    def answered(self, completion_tokens: int) -> None:
        """Steering expects answers as long as those it has seen."""
        self._placer.answered(completion_tokens)


class Pools:
    """The pools of all served models, looked at every REFRESH_S by one task."""

    def __init__(self, pools: Mapping[str, Pool], metrics: Metrics) -> None:
        self._pools = pools
        for pool in pools.values():
            metrics.count_workers_by(names.generate(pool.model), pool.count)
        self._looking = Repeated(self._refresh, REFRESH_S, "pools")

    def __getitem__(self, model: str) -> Pool:
        return self._pools[model]

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())

    async def start(self) -> None:
        """Look once, then go on looking until closed."""
        await self._looking.start()

    async def close(self) -> None:
        await self._looking.close()

    async def _refresh(self) -> None:
        await asyncio.gather(*(pool.refresh() for pool in self._pools.values()))
