"""Where a job goes: block keys, a decision on the index, one of the chosen worker's partitions."""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Protocol, Self

import msgspec

from infra.clock import Clock
from infra.faults import PortFault
from infra.metrics import Metrics
from infra.ports import Incarnation, PoolView
from schemas.jobs import GenerateJob, Placement
from schemas.steering import Ask, Choice, Decision
from topics import steer
from topics.steering import namespaces
from topics.steering.blocks import begin
from topics.steering.chains import Chains
from topics.steering.namespaces import KeySpace
from topics.steering.releases import Releases
from topics.steering.steerer import Steerer

log = logging.getLogger(__name__)

# Longer prompts are hashed in a thread: 100,000 tokens take milliseconds.
INLINE_TOKENS = 16_384
# A decision later than this is worth less than a guess.
DECIDE_WITHIN_S = 1.0
# The expected answer is a moving average of those seen; one newcomer counts this much.
AVERAGE_SHARE = 0.05
FIRST_GUESS_TOKENS = 256.0
# After the deadline nobody gives a reservation back any more.
GRACE_S = 5.0
# A decision among sixty workers has as many alternatives; the nearest ones tell why.
ALTERNATIVES = 8


class Placed(msgspec.Struct, frozen=True):
    """A job on its way: with its placement in it, to this partition, and the decision as it was made."""

    job: GenerateJob
    partition: int
    worker: str  # its name; empty when nobody is there
    choice: Choice
    hops: int = 0  # how often a worker has given it back before

    @property
    def predicted_tokens(self) -> int:
        """Of the prompt, that the worker's prefix cache is expected to hold."""
        return self.job.placement.predicted_tokens if self.job.placement else 0

    @property
    def decision(self) -> Decision:
        """What there is to tell of it."""
        nearest = sorted(self.choice.alternatives, key=lambda one: one.cost)[:ALTERNATIVES]
        costs = {one.worker: one.cost for one in nearest}
        return Decision(self.worker, self.partition, self.choice.reason, self.predicted_tokens, self.hops, costs)

    @property
    def telling(self) -> GenerateJob:
        """The job as it is sent by others than the gateway that follows the request, which must learn of it."""
        return msgspec.structs.replace(self.job, decision=self.decision)


class Placer(Protocol):
    """Decides for the jobs of one model."""

    async def place(self, job: GenerateJob, view: PoolView, sent: Mapping[str, int], session: str = "") -> Placed:
        """Choose and reserve. `sent`: what this producer has sent to each worker and not seen end. Never fails.

        A job that has been placed before is one that its worker gives back: it counts a hop more.
        """
        ...

    def answered(self, completion_tokens: int) -> None:
        """Learn from an answer how long answers are."""
        ...


class LeastLoadedPlacer:
    """Without an index: what workers tell of their load, and what was sent to them since."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._tickets = itertools.count()

    async def place(self, job: GenerateJob, view: PoolView, sent: Mapping[str, int], session: str = "") -> Placed:
        chosen = steer.choose(view, self._partitions, sent, next(self._tickets))
        unreserved = msgspec.structs.replace(job, placement=None)  # an earlier one is given back
        return Placed(unreserved, chosen.partition, chosen.worker, Choice(chosen.worker, chosen.reason, 0), _hops(job))

    def answered(self, completion_tokens: int) -> None:
        pass


class IndexPlacer:
    """With the prefix index; where it cannot say, the least-loaded worker gets the job, and the reason says so."""

    def __init__(
        self, space: KeySpace, partitions: int, steerer: Steerer, releases: Releases, metrics: Metrics, clock: Clock
    ) -> None:
        self._space = space
        self._chains = Chains(space.block_tokens)
        self._steerer = steerer
        self._releases = releases
        self._metrics = metrics
        self._fallback = LeastLoadedPlacer(partitions)
        self._clock = clock
        self._expected_tokens = FIRST_GUESS_TOKENS
        self._turns = itertools.count()
        self._pool = _Pool.seen(PoolView({}, {}))

    def answered(self, completion_tokens: int) -> None:
        self._expected_tokens += AVERAGE_SHARE * (completion_tokens - self._expected_tokens)

    async def place(self, job: GenerateJob, view: PoolView, sent: Mapping[str, int], session: str = "") -> Placed:
        placed = await self._place(job, view, sent, session)
        self._metrics.steered(self._space.model, placed.choice.reason)
        return placed

    async def _place(self, job: GenerateJob, view: PoolView, sent: Mapping[str, int], session: str) -> Placed:
        hops = _hops(job)
        ticket = f"{job.head.request_id}#{hops}" if hops else job.head.request_id
        if self._pool.view is not view:
            self._pool = _Pool.seen(view)
        pool = self._pool
        try:
            async with asyncio.timeout(DECIDE_WITHIN_S):
                choice = await self._decide(ticket, job, pool.living, session)
        except (PortFault, TimeoutError) as error:
            log.warning("steering cannot decide on %s: %s", job.head.request_id, error or "no answer in time")
            self._releases.give_back(ticket)  # it may have been decided all the same, or still be
            choice = None
        except asyncio.CancelledError:
            self._releases.give_back(ticket)
            raise
        if choice is None:
            return await self._fallback.place(job, view, sent)
        worker = choice.worker.rpartition(":")[0]
        owned = pool.partitions[choice.worker]
        placement = Placement(ticket, worker, choice.matched_blocks * self._space.block_tokens, choice.reason, hops)
        placed = msgspec.structs.replace(job, placement=placement)
        return Placed(placed, owned[next(self._turns) % len(owned)], worker, choice, hops)

    async def _decide(self, ticket: str, job: GenerateJob, workers: list[Incarnation], session: str) -> Choice | None:
        keys = await self._keys(job)
        ask = Ask(len(job.prompt_ids), len(keys), self._space.block_tokens, self._expected_tokens, session)
        ttl_s = job.head.deadline_at - self._clock.now() + GRACE_S
        return await self._steerer.place(ticket, ask, keys, workers, ttl_s)

    async def _keys(self, job: GenerateJob) -> list[bytes]:
        root = begin(namespaces.of(self._space.plain, job))
        media = namespaces.media(job)
        if len(job.prompt_ids) <= INLINE_TOKENS:
            return self._chains.of(root, job.prompt_ids, media).keys
        chain = await asyncio.to_thread(self._chains.of, root, job.prompt_ids, media)
        return chain.keys


def _hops(job: GenerateJob) -> int:
    """How often it will have been given back. What is placed without a reservation remembers it in what it tells."""
    earlier = job.placement or job.decision
    return earlier.hops + 1 if earlier else 0


class _Pool(msgspec.Struct, frozen=True):
    """What every decision asks of one view; views change a few times a second, decisions are made by the thousand."""

    view: PoolView
    living: list[Incarnation]
    partitions: dict[str, list[int]]  # of each owner, in order

    @classmethod
    def seen(cls, view: PoolView) -> Self:
        partitions: dict[str, list[int]] = {}
        for number, owner in sorted(view.owners.items()):
            partitions.setdefault(str(owner), []).append(number)
        return cls(view, living(view), partitions)


def living(view: PoolView) -> list[Incarnation]:
    """Who owns partitions and has sent a beat of the same life."""
    owners = {str(owner): owner for owner in view.owners.values()}
    alive = {name: beat.epoch for name, beat in view.beats.items()}
    return [owner for _, owner in sorted(owners.items()) if alive.get(owner.worker) == owner.epoch]
