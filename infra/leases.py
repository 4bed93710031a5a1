"""Leases on Redis: who owns which partition of one model, now. The rules are in infra/lua/lease_*.lua."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis

from infra import keys
from infra.clock import Clock, SystemClock
from infra.faults import Unavailable
from infra.ports import Incarnation, PoolView, Tick
from infra.redis_client import Script
from schemas.codec import decode_beat, encode
from schemas.signals import Beat

log = logging.getLogger(__name__)

# Two ticks: a slower answer is worth less than a new try.
ANSWER_LIMIT_S = 2 * keys.TICK_S
# So that a thing that nobody understands is told of once, and not with every look.
MOST_REMEMBERED = 100

T = TypeVar("T")


class RedisLeases:
    """Implements ports.Leases for the workers of one model. Tests shorten `ttl_ms` and `life_ttl_ms`."""

    def __init__(
        self,
        redis: Redis,
        model: str,
        *,
        ttl_ms: int = keys.LEASE_TTL_MS,
        life_ttl_ms: int = keys.LIFE_TTL_MS,
        clock: Clock | None = None,
    ) -> None:
        self._model = model
        self._ttl_ms = ttl_ms
        self._life_ttl_ms = life_ttl_ms
        self._clock = clock or SystemClock()
        self._held: dict[Incarnation, frozenset[int]] = {}
        self._retired: set[Incarnation] = set()
        self._unreadable: set[tuple[bytes, ...]] = set()  # told of in the log
        self._join = Script(redis, "lease_join")
        self._tick = Script(redis, "lease_tick")
        self._release = Script(redis, "lease_release")
        self._view = Script(redis, "lease_view")

    async def join(self, worker: str) -> Incarnation:
        names = [keys.epochs(self._model), keys.life(self._model, worker), keys.alive(self._model, worker)]
        return Incarnation(worker, int(await _ask(self._join, names, [self._ttl_ms, self._life_ttl_ms])))

    async def tick(self, me: Incarnation, partitions: int, beat: Beat) -> Tick:
        sent_at = self._clock.monotonic()
        if me in self._retired:
            fenced = await self._give_back(me, (), stay_ms=self._ttl_ms)
            return Tick(frozenset(), self._valid_for_s(sent_at), fenced)
        held = self._held.get(me, frozenset())
        had = "".join("1" if one in held else "0" for one in range(partitions))
        told: list[str | int | bytes] = [me.worker, me.epoch, self._ttl_ms, encode(beat), had, self._life_ttl_ms]
        fenced, owned, taken = await _ask(self._tick, self._keys(me, range(partitions)), told)
        if fenced:
            self._held.pop(me, None)
            return Tick(frozenset(), self._valid_for_s(sent_at), fenced=True)
        self._held[me] = frozenset(owned)
        return Tick(self._held[me], self._valid_for_s(sent_at), taken=frozenset(taken))

    async def retire(self, me: Incarnation, partitions: int, beat: Beat) -> None:
        self._retired.add(me)
        await self._give_back(me, range(partitions), stay_ms=self._ttl_ms)

    async def leave(self, me: Incarnation) -> None:
        await self._give_back(me, self._held.get(me, frozenset()), stay_ms=0)
        self._retired.discard(me)

    async def view(self, partitions: int) -> PoolView:
        leases = [keys.lease(self._model, one) for one in range(partitions)]
        owners, beats = await _ask(self._view, [keys.workers(self._model), keys.beats(self._model), *leases], [])
        held = {partition: self._readable(_incarnation, owner) for partition, owner in enumerate(owners) if owner}
        heard = [self._readable(_beat, name, raw) for name, raw in zip(beats[::2], beats[1::2], strict=True)]
        return PoolView(
            {partition: owner for partition, owner in held.items() if owner}, dict(one for one in heard if one)
        )

    def _readable(self, read: Callable[..., T], *raw: bytes) -> T | None:
        """What others have written; one that nobody understands (from a newer version?) is as good as absent."""
        try:
            return read(*raw)
        except (msgspec.MsgspecError, ValueError) as error:
            if raw not in self._unreadable:
                self._unreadable = {*self._unreadable, raw} if len(self._unreadable) < MOST_REMEMBERED else {raw}
                log.warning("%s: what nobody understands among the leases: %r: %s", self._model, raw, error)
            return None

    async def _give_back(self, me: Incarnation, partitions: Iterable[int], stay_ms: int) -> bool:
        """True when this life has been fenced."""
        told: list[str | int | bytes] = [me.worker, me.epoch, stay_ms, self._life_ttl_ms]
        fenced = await _ask(self._release, self._keys(me, partitions), told)
        self._held.pop(me, None)
        return bool(fenced)

    def _keys(self, me: Incarnation, partitions: Iterable[int]) -> list[str]:
        model = self._model
        own = [keys.life(model, me.worker), keys.alive(model, me.worker), keys.workers(model), keys.beats(model)]
        return own + [keys.lease(model, one) for one in partitions]

    def _valid_for_s(self, sent_at: float) -> float:
        """Counted from before the question left: Redis can only have renewed later than that."""
        return self._ttl_ms / 1000 - (self._clock.monotonic() - sent_at)


async def _ask(script: Script, names: Sequence[str], args: Sequence[str | int | bytes]) -> Any:
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            return await script(names, args)
    except TimeoutError as error:
        raise Unavailable(f"no answer about leases within {ANSWER_LIMIT_S:g} s") from error


def _beat(name: bytes, raw: bytes) -> tuple[str, Beat]:
    return name.decode(), decode_beat(raw)


def _incarnation(value: bytes) -> Incarnation:
    worker, _, epoch = value.decode().rpartition(":")
    return Incarnation(worker, int(epoch))
