"""Jobs on their way out: who serves which model right now, which worker gets the next job, and the send itself."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from infra.faults import PortFault
from infra.metrics import Metrics
from infra.ports import Leases, PoolView
from infra.repeated import Repeated
from infra.tasks import owned
from schemas.jobs import GenerateJob
from topics import names
from topics.headers import Headers
from topics.steering.dispatch import Dispatcher
from topics.steering.placer import Placed

log = logging.getLogger(__name__)

REFRESH_S = 0.25
# A view that could not be refreshed for so long says nothing any more about who is alive.
STALE_AFTER_S = 5.0

_NOBODY = PoolView(owners={}, beats={})


class Pool:
    """The workers of one model, as seen from this gateway."""

    def __init__(self, model: str, partitions: int, leases: Leases, dispatcher: Dispatcher) -> None:
        self.model = model
        self._partitions = partitions
        self._leases = leases
        self._dispatcher = dispatcher
        self._view = _NOBODY
        self._failures = 0

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
        except PortFault as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("cannot see the workers of %s: %s", self.model, error)
            if self._failures * REFRESH_S >= STALE_AFTER_S:
                self._view = _NOBODY

    @asynccontextmanager
    async def sent(self, job: GenerateJob, headers: Headers, session: str = "") -> AsyncIterator[Placed]:
        """Send the job to the worker that steering chooses; it counts as that worker's load while inside.

        Raises:
            Unavailable, Missing, Refused: as Dispatcher.send.
        """
        placed = await self._dispatcher.send(job, self._view, headers, session=session, telling=False)
        try:
            yield placed
        finally:
            self._dispatcher.ended(placed)

    async def run(self) -> None:
        """Until cancelled, whatever `Dispatcher.run` does."""
        await self._dispatcher.run()

    def answered(self, completion_tokens: int) -> None:
        """Steering expects answers as long as those it has seen."""
        self._dispatcher.answered(completion_tokens)


class Pools:
    """The pools of all served models, looked at every REFRESH_S by one task."""

    def __init__(self, pools: Mapping[str, Pool], metrics: Metrics) -> None:
        self._pools = pools
        for pool in pools.values():
            metrics.count_workers_by(names.generate(pool.model), pool.count)
        self._looking = Repeated(self._refresh, REFRESH_S, "pools")
        self._running: list[asyncio.Task[None]] = []

    def __getitem__(self, model: str) -> Pool:
        return self._pools[model]

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())

    async def start(self) -> None:
        """Look once, then go on looking until closed."""
        await self._looking.start()
        self._running = [owned(pool.run(), f"dispatch to {pool.model}") for pool in self._pools.values()]

    async def close(self) -> None:
        await self._looking.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _refresh(self) -> None:
        await asyncio.gather(*(pool.refresh() for pool in self._pools.values()))
