"""A generate job on its way through steering, from whoever has it once and keeps no view of the pool: encoders."""

import logging

from infra.faults import PortFault
from infra.ports import Leases, PoolView
from schemas.jobs import GenerateJob
from topics.headers import Headers
from topics.steering.dispatch import Dispatcher

log = logging.getLogger(__name__)

_NOBODY = PoolView(owners={}, beats={})


class GenerateSender:
    """For the LLM pool of one model."""

    def __init__(self, partitions: int, leases: Leases, dispatcher: Dispatcher) -> None:
        self._partitions = partitions
        self._leases = leases
        self._dispatcher = dispatcher

    async def send(self, job: GenerateJob, headers: Headers | None = None) -> None:
        """Returns when the broker has it. Raises as Dispatcher.send."""
        placed = await self._dispatcher.send(job, await self._view(job.head.model), headers)
        self._dispatcher.ended(placed)  # nobody here follows it

    async def _view(self, model: str) -> PoolView:
        try:
            return await self._leases.view(self._partitions)
        except PortFault as error:
            log.warning("cannot see the workers of %s, sending to any: %s", model, error)
            return _NOBODY
