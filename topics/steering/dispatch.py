"""A generate job on its way to a worker: placed, then sent; or its reservation is given back. For all who send one."""

import random
from collections import Counter

from infra.clock import Clock
from infra.metrics import Metrics
from infra.ports import PoolView
from infra.prefix_index import PrefixIndex
from schemas.jobs import GenerateJob
from schemas.manifest import Manifest
from topics import names
from topics.bus import Producer
from topics.headers import Headers
from topics.steering.namespaces import KeySpace
from topics.steering.placer import IndexPlacer, Placed, Placer
from topics.steering.policy import Policy
from topics.steering.releases import Releases
from topics.steering.steerer import Steerer


class Dispatcher:
    """For the LLM pool of one model, from one process. `run` it in a task."""

    def __init__(self, model: str, placer: Placer, producer: Producer, releases: Releases) -> None:
        self._topic = names.generate(model)
        self._placer = placer
        self._producer = producer
        self._releases = releases
        self._sent: Counter[str] = Counter()  # to each worker, from here, and not known to have ended

    async def send(
        self,
        job: GenerateJob,
        view: PoolView,
        headers: Headers | None = None,
        *,
        session: str = "",
        telling: bool = True,
    ) -> Placed:
        """Returns when the broker has it; from its placement on, until `ended`, it counts as load of its worker.

        `telling`: the job says why it went where it goes, for the worker to tell whoever follows the request.

        Raises:
            Unavailable, Missing, Refused: as Producer.send; nothing is reserved then.
        """
        placed = await self._placer.place(job, view, self._sent, session)
        self._sent[placed.worker] += 1
        key, message = job.head.request_id.encode(), placed.telling if telling else placed.job
        try:
            await self._producer.send(self._topic, message, partition=placed.partition, key=key, headers=headers)
        except BaseException:
            self.ended(placed)
            if placed.job.placement is not None:
                self._releases.give_back(placed.job.placement.ticket)
            raise
        return placed

    def ended(self, placed: Placed) -> None:
        """It has ended, or nobody here will know when it does."""
        self._sent[placed.worker] -= 1
        if not self._sent[placed.worker]:
            del self._sent[placed.worker]

    def answered(self, completion_tokens: int) -> None:
        """Steering expects answers as long as those it has seen."""
        self._placer.answered(completion_tokens)

    async def run(self) -> None:
        """Give back, until cancelled, what was reserved for jobs that were not sent."""
        await self._releases.run()


def by_index(
    llm: Manifest,
    space: KeySpace,
    index: PrefixIndex,
    policy: Policy,
    producer: Producer,
    metrics: Metrics,
    clock: Clock,
) -> Dispatcher:
    """Steered by the prefix index of that model. Raises UnknownPolicy."""
    releases = Releases(index.release, clock)
    steerer = Steerer(index, policy, random.Random())
    placer = IndexPlacer(space, llm.partitions, steerer, releases, metrics, clock)
    return Dispatcher(llm.id, placer, producer, releases)
