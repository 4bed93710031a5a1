"""That a worker without partitions (an encoder, a decoder) lives, told where claims look for it.

LLM workers tell it with every tick of their leases; these have no leases, must not count for a share of partitions, and
one of them works for several models. The keys and their meaning are the same, so a claim need not know the difference.
"""

import asyncio
from collections.abc import Iterable
from typing import NoReturn, Protocol

from redis.asyncio import Redis

from infra import keys
from infra.faults import Unavailable
from infra.memory import MemoryHub
from infra.ports import Incarnation, Outlived
from infra.redis_client import Script
from infra.repeated import regularly


class RedisLives:
    """Implements ports.Lives for one worker. `ttl_ms` is shortened in tests only."""

    def __init__(self, redis: Redis, worker: str, *, ttl_ms: int = keys.LEASE_TTL_MS) -> None:
        self._worker = worker
        self._ttl_ms = ttl_ms
        self._join = Script(redis, "lease_join")
        self._renew = Script(redis, "alive_renew")
        self._lives: dict[str, Incarnation] = {}
        self._joining = asyncio.Lock()

    async def of(self, model: str) -> Incarnation:
        async with self._joining:  # two begun at once would fence each other
            if model not in self._lives:
                epoch = await self._join([keys.epochs(model), *self._keys(model)], [self._ttl_ms, keys.LIFE_TTL_MS])
                self._lives[model] = Incarnation(self._worker, int(epoch))
            return self._lives[model]

    async def renew(self) -> None:
        await self._tell(self._ttl_ms)

    async def end(self) -> None:
        await self._tell(0)
        self._lives.clear()

    async def _tell(self, stay_ms: int) -> None:
        lives = list(self._lives.items())
        answers = await asyncio.gather(
            *(self._renew(self._keys(model), [me.epoch, stay_ms, keys.LIFE_TTL_MS]) for model, me in lives),
            return_exceptions=True,
        )
        _raise_worst(answers)
        if stay_ms and any(answers):
            raise Outlived(f"a later life of {self._worker} has begun")

    def _keys(self, model: str) -> list[str]:
        return [keys.life(model, self._worker), keys.alive(model, self._worker)]


class MemoryLives:
    """The twin in one process; nothing expires: a test that kills a worker takes its entry out of `hub.alive`."""

    def __init__(self, hub: MemoryHub, worker: str) -> None:
        self._hub = hub
        self._worker = worker
        self._lives: dict[str, Incarnation] = {}

    async def of(self, model: str) -> Incarnation:
        if model not in self._lives:
            place = (model, self._worker)
            self._hub.epochs[place] = self._hub.alive[place] = next(self._hub.fresh_epochs)
            self._lives[model] = Incarnation(self._worker, self._hub.alive[place])
        return self._lives[model]

    async def renew(self) -> None:
        for model, me in self._lives.items():
            if self._is_outlived(model, me):
                raise Outlived(f"a later life of {self._worker} has begun")
            self._hub.alive[(model, self._worker)] = me.epoch

    async def end(self) -> None:
        for model, me in self._lives.items():
            if not self._is_outlived(model, me):
                self._hub.alive.pop((model, self._worker), None)
        self._lives.clear()

    def _is_outlived(self, model: str, me: Incarnation) -> bool:
        return self._hub.epochs[(model, self._worker)] != me.epoch


class Renewed(Protocol):
    async def renew(self) -> None:
        """Wanted every keys.TICK_S. Raises Unavailable when the store does not answer."""
        ...


async def keep_alive(*told: Renewed) -> NoReturn:
    """Renew all of these with every tick, until cancelled. While Redis does not answer, others may take this worker's
    requests over; the fencing of attempts makes that harmless.

    Raises:
        Outlived: this process must stop.
    """

    async def renew() -> None:
        _raise_worst(await asyncio.gather(*(one.renew() for one in told), return_exceptions=True))

    await regularly(renew, keys.TICK_S, "telling that this worker lives")


def _raise_worst(answers: Iterable[object]) -> None:
    """Of what several have raised: an outage only if there is nothing else."""
    errors = [one for one in answers if isinstance(one, BaseException)]
    if errors:
        raise min(errors, key=lambda one: isinstance(one, Unavailable))
