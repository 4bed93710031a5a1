"""The in-process twin of leases.py: one object shared by all workers of a model, on a clock that tests may move."""

import itertools

import msgspec

from infra import keys
from infra.clock import Clock
from infra.ports import Incarnation, PoolView, Tick
from schemas.signals import Beat


class _Lease(msgspec.Struct):
    owner: Incarnation
    until: float


class _Life(msgspec.Struct):
    epoch: int
    until: float


class MemoryLeases:
    """Implements ports.Leases. Workers, and the memory of their names, expire on `clock.monotonic()`."""

    def __init__(self, clock: Clock, *, ttl_ms: int = keys.LEASE_TTL_MS, life_ttl_ms: int = keys.LIFE_TTL_MS) -> None:
        self._clock = clock
        self._ttl_s = ttl_ms / 1000
        self._life_ttl_s = life_ttl_ms / 1000
        self._fresh_epochs = itertools.count(1)
        self._lives: dict[str, _Life] = {}
        self._workers: dict[str, float] = {}
        self._beats: dict[str, Beat] = {}
        self._leases: dict[int, _Lease] = {}
        self._held: dict[Incarnation, frozenset[int]] = {}
        self._retired: set[Incarnation] = set()

    async def join(self, worker: str) -> Incarnation:
        me = Incarnation(worker, next(self._fresh_epochs))
        self._remember(me)
        return me

    async def tick(self, me: Incarnation, partitions: int, beat: Beat) -> Tick:
        if self._fenced(me):
            return Tick(frozenset(), self._ttl_s, fenced=True)
        self._remember(me)
        if me in self._retired:
            return Tick(frozenset(), self._ttl_s)
        until = self._clock.monotonic() + self._ttl_s
        self._workers[me.worker] = until
        self._beats[me.worker] = beat
        self._forget_expired()
        mine = {one for one, lease in self._leases.items() if lease.owner.worker == me.worker}
        kept = {one for one in mine if self._leases[one].owner == me}
        target = self._target(me, partitions)
        for surplus in sorted(mine)[target:]:
            mine.discard(surplus)
            del self._leases[surplus]
        free = {one for one in range(partitions) if one not in self._leases}
        lapsed = free & self._held.get(me, frozenset())
        mine.update(sorted(lapsed or free)[: target - len(mine)])
        for one in mine:
            self._leases[one] = _Lease(me, until)
        self._held[me] = frozenset(mine)
        return Tick(self._held[me], self._ttl_s, taken=frozenset(mine - kept))

    async def retire(self, me: Incarnation, partitions: int, beat: Beat) -> None:
        self._retired.add(me)
        if not self._fenced(me):
            self._release(me)

    async def leave(self, me: Incarnation) -> None:
        if not self._fenced(me):
            self._release(me)
        self._retired.discard(me)

    async def view(self, partitions: int) -> PoolView:
        self._forget_expired()
        owners = {one: lease.owner for one, lease in sorted(self._leases.items()) if one < partitions}
        return PoolView(owners, dict(self._beats))

    def _fenced(self, me: Incarnation) -> bool:
        life = self._lives.get(me.worker)
        return life is not None and life.until > self._clock.monotonic() and life.epoch > me.epoch

    def _remember(self, me: Incarnation) -> None:
        now = self._clock.monotonic()
        self._lives = {name: life for name, life in self._lives.items() if life.until > now}
        self._lives[me.worker] = _Life(me.epoch, now + self._life_ttl_s)

    def _target(self, me: Incarnation, partitions: int) -> int:
        """The share of this worker: floor, or one more while not too many others have one more."""
        floor, extra = divmod(partitions, len(self._workers))
        counts: dict[str, int] = {}
        for lease in self._leases.values():
            counts[lease.owner.worker] = counts.get(lease.owner.worker, 0) + 1
        above = sum(count > floor for name, count in counts.items() if name in self._workers and name != me.worker)
        return floor + 1 if above < extra else floor

    def _release(self, me: Incarnation) -> None:
        self._leases = {one: lease for one, lease in self._leases.items() if lease.owner.worker != me.worker}
        self._workers.pop(me.worker, None)
        self._beats.pop(me.worker, None)
        self._held.pop(me, None)

    def _forget_expired(self) -> None:
        now = self._clock.monotonic()
        self._leases = {one: lease for one, lease in self._leases.items() if lease.until > now}
        for name in [name for name, until in self._workers.items() if until <= now]:
            del self._workers[name]
            self._beats.pop(name, None)
