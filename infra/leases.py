"""Leases on Redis: who owns which partition of one model, now. The scripts and their rules are in lease_scripts.py."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, cast

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from infra import keys, lease_scripts
from infra.clock import Clock, SystemClock
from infra.ports import Incarnation, PoolView, Tick
from schemas.codec import decode_beat, encode
from schemas.signals import Beat

# Two ticks: a slower answer is worth less than a new try.
ANSWER_LIMIT_S = 2 * keys.TICK_S


class RedisLeases:
    """Implements ports.Leases for the workers of one model. `ttl_ms` is shortened in tests only."""

    def __init__(
        self, redis: Redis, model: str, *, ttl_ms: int = keys.LEASE_TTL_MS, clock: Clock | None = None
    ) -> None:
        self._model = model
        self._ttl_ms = ttl_ms
        self._clock = clock or SystemClock()
        self._held: dict[Incarnation, frozenset[int]] = {}
        self._retired: set[Incarnation] = set()
        self._join = redis.register_script(lease_scripts.JOIN)
        self._tick = redis.register_script(lease_scripts.TICK)
        self._retire = redis.register_script(lease_scripts.RETIRE)
        self._leave = redis.register_script(lease_scripts.LEAVE)
        self._view = redis.register_script(lease_scripts.VIEW)

    async def join(self, worker: str) -> Incarnation:
        epoch = await self._ask(
            self._join, [keys.epoch(self._model), keys.alive(self._model, worker)], [worker, self._ttl_ms]
        )
        return Incarnation(worker, int(epoch))

    async def tick(self, me: Incarnation, partitions: int, beat: Beat) -> Tick:
        sent_at = self._clock.monotonic()
        if me in self._retired:
            fenced = await self._ask(self._retire, self._keys(me, ()), self._identity(me))
            return Tick(frozenset(), self._valid_for_s(sent_at), bool(fenced))
        held = self._held.get(me, frozenset())
        had = "".join("1" if one in held else "0" for one in range(partitions))
        fenced, owned, taken = await self._ask(
            self._tick, self._keys(me, range(partitions)), [*self._identity(me), encode(beat), had]
        )
        self._held[me] = frozenset(owned)
        return Tick(self._held[me], self._valid_for_s(sent_at), bool(fenced), frozenset(taken))

    async def retire(self, me: Incarnation, partitions: int, beat: Beat) -> None:
        self._retired.add(me)
        await self._ask(self._retire, self._keys(me, range(partitions)), self._identity(me))
        self._held.pop(me, None)

    async def leave(self, me: Incarnation) -> None:
        held = self._held.get(me, frozenset())
        await self._ask(self._leave, self._keys(me, sorted(held)), self._identity(me))
        self._held.pop(me, None)
        self._retired.discard(me)

    async def view(self, partitions: int) -> PoolView:
        leases = [keys.lease(self._model, one) for one in range(partitions)]
        owners, beats = await self._ask(self._view, [keys.workers(self._model), keys.beats(self._model), *leases], [])
        return PoolView(
            {partition: _incarnation(owner) for partition, owner in enumerate(owners) if owner},
            {name.decode(): decode_beat(raw) for name, raw in zip(beats[::2], beats[1::2], strict=True)},
        )

    def _keys(self, me: Incarnation, partitions: Sequence[int]) -> list[str]:
        model = self._model
        return [
            keys.epoch(model),
            keys.alive(model, me.worker),
            keys.workers(model),
            keys.beats(model),
            *(keys.lease(model, one) for one in partitions),
        ]

    def _identity(self, me: Incarnation) -> list[str | int | bytes]:
        return [me.worker, me.epoch, self._ttl_ms]

    def _valid_for_s(self, sent_at: float) -> float:
        """Counted from before the question left: Redis can only have renewed later than that."""
        return self._ttl_ms / 1000 - (self._clock.monotonic() - sent_at)

    async def _ask(self, script: AsyncScript, names: list[str], args: Sequence[str | int | bytes]) -> Any:
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return await cast(Awaitable[Any], script(keys=names, args=args))
        except TimeoutError as error:
            raise ConnectionError(f"no answer about leases within {ANSWER_LIMIT_S:g} s") from error
        except RedisError as error:
            raise ConnectionError(f"cannot ask for leases: {error}") from error


def _incarnation(value: bytes) -> Incarnation:
    worker, _, epoch = value.decode().rpartition(":")
    return Incarnation(worker, int(epoch))
