"""A policy at work on the index: decide, reserve, and say why."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import msgspec

from infra.ports import Incarnation
from infra.prefix_index import PrefixIndex
from schemas.steering import Ask, Choice
from topics.steering.policy import Policy, UnknownPolicy

# After so many looks that were out of date before our choice was reserved, Redis decides, by load alone.
LOOKS = 5
CONTENDED = "contended"


class Steerer:
    """For the producers of one model. `affinity` and `least_load` are decided inside Redis, in one atomic step.

    The other policies look, decide here and reserve only if nobody has decided in between: one decision at a time in
    this process. Where other gateways are faster LOOKS times, the job goes to whichever worker is least loaded at that
    moment, and the reason says so: nothing is ever reserved because of what is no longer so.
    """

    def __init__(self, index: PrefixIndex, policy: Policy, rng: random.Random) -> None:
        """Raises UnknownPolicy for one that needs a record of own decisions in place of the index."""
        if policy.approximate:
            raise UnknownPolicy(f"steering policy {policy.name!r} is for the benchmark's fast mode only")
        self._index = index
        self._policy = policy
        self._rng = rng
        self._one_at_a_time = asyncio.Lock()
        self._turn = rng.randrange(1 << 20)  # gateways do not all begin with the same worker

    async def place(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], workers: Sequence[Incarnation], ttl_s: float
    ) -> Choice | None:
        """Choose among live workers and reserve under `ticket`. None when the index knows none of them.

        Raises:
            Unavailable: Redis does not answer.
        """
        self._turn += 1
        asked = msgspec.structs.replace(ask, turn=self._turn, draw=self._rng.random())
        if self._policy.affinity is not None:
            params: Mapping[str, float] = msgspec.structs.asdict(self._policy.affinity)
            return await self._index.place(ticket, asked, block_keys, workers, params, ttl_s)
        if self._policy.name == "least_load":
            return await self._index.place_least_loaded(ticket, asked, block_keys, workers, ttl_s)
        async with self._one_at_a_time:
            return await self._place_from_here(ticket, asked, block_keys, workers, ttl_s)

    async def _place_from_here(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], workers: Sequence[Incarnation], ttl_s: float
    ) -> Choice | None:
        for _ in range(LOOKS):
            look = await self._index.look(block_keys, workers)
            if not look.views:
                return None
            choice = self._policy.decide(ask, look.views)
            version = None if self._policy.blind(ask) else look.version
            if await self._index.reserve(ticket, ask, block_keys, choice.worker, version, ttl_s) == "reserved":
                return choice
        least = await self._index.place_least_loaded(ticket, ask, block_keys, workers, ttl_s)
        return msgspec.structs.replace(least, reason=CONTENDED) if least else None
