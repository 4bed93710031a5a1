"""A generate job on its way through steering, from whoever has it once and keeps no view of the pool: encoders."""

import logging

from infra.faults import Unavailable
from infra.ports import Leases, PoolView
from schemas.jobs import GenerateJob
from topics import names
from topics.bus import Producer
from topics.headers import Headers
from topics.steering.placer import Placer

log = logging.getLogger(__name__)

_NOBODY = PoolView(owners={}, beats={})


class GenerateSender:
    """For the LLM pool of one model."""

    def __init__(self, model: str, partitions: int, leases: Leases, placer: Placer, producer: Producer) -> None:
        self._topic = names.generate(model)
        self._partitions = partitions
        self._leases = leases
        self._placer = placer
        self._producer = producer

    async def send(self, job: GenerateJob, headers: Headers | None = None) -> None:
        """Returns when the broker has it.

        Raises:
            TriptychError: overloaded, when the broker does not take it in time.
        """
        placed = await self._placer.place(job, await self._view(), {})
        key = job.head.request_id.encode()
        partition = placed.partition
        await self._producer.send(self._topic, placed.telling, partition=partition, key=key, headers=headers)

    async def _view(self) -> PoolView:
        try:
            return await self._leases.view(self._partitions)
        except Unavailable as error:
            log.warning("cannot see the workers of %s, sending to any: %s", self._topic, error)
            return _NOBODY
