"""Which partitions this worker holds at this moment, by leases that are renewed in the background."""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from infra import keys
from infra.clock import Clock
from infra.faults import PortFault
from infra.ports import Incarnation, Leases, Tick
from schemas.signals import Beat
from topics.bus import FencedOff
from topics.tenure import Tenure

log = logging.getLogger(__name__)


class Ownership:
    """`tenures` are the partitions held; they count only while `valid`. `beat` gives the worker's load; its name, epoch
    and time are filled in here. `partitions` says how many the topic has."""

    def __init__(
        self,
        worker: str,
        leases: Leases,
        beat: Callable[[], Beat],
        partitions: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._leases = leases
        self._beat = beat
        self._partitions = partitions
        self._clock = clock
        self._me: Incarnation | None = None
        self._valid_until = 0.0
        self._fenced = self._retiring = self._retired = False
        self._asking = asyncio.Lock()  # one question at a time: answers must not overtake each other
        self._changed = asyncio.Event()
        self.renewing: asyncio.Task[None] | None = None
        self.tenures: dict[int, Tenure] = {}

    @property
    def me(self) -> Incarnation:
        if self._me is None:
            raise RuntimeError("the consumer has not been started")
        return self._me

    @property
    def valid(self) -> bool:
        """False when the last renewal is so long ago that others may have taken the leases."""
        return self._clock.monotonic() < self._valid_until

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self.tenures) if self.valid else frozenset()

    async def start(self) -> None:
        self._me = await self._leases.join(self._worker)
        self.renewing = asyncio.create_task(self._renew(), name="renew leases")

    def raise_if_over(self) -> None:
        """Raises FencedOff."""
        if self._fenced:
            raise FencedOff(f"a later life of worker {self._worker} has begun")

    async def changed(self, within_s: float) -> None:
        """Wait for the next renewal, or until the time is over."""
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def retire(self) -> None:
        """Give everything back; the renewal goes on, so that claims stay valid."""
        self._retiring = True
        self.tenures = {}
        await self._ask()

    async def leave(self) -> None:
        """End the renewal and this life."""
        if self.renewing is None:
            return
        self.renewing.cancel()
        await asyncio.gather(self.renewing, return_exceptions=True)
        self.renewing = None
        self.tenures = {}
        try:
            await self._leases.leave(self.me)
        except PortFault as error:
            log.warning("could not leave the pool, the leases will run out: %s", error)

    async def _renew(self) -> None:
        while not self._fenced:
            await self._ask()
            await asyncio.sleep(keys.TICK_S)

    async def _ask(self) -> None:
        me, count = self.me, self._partitions()
        beat = msgspec.structs.replace(self._beat(), worker=me.worker, epoch=me.epoch, at=self._clock.now())
        try:
            async with self._asking:
                if self._retiring and not self._retired:
                    await self._leases.retire(me, count, beat)
                    self._retired = True
                self._apply(await self._leases.tick(me, count, beat))
        except PortFault as error:
            # What is held stays so until `_valid_until`; then nothing is handed out any more.
            log.warning("cannot renew leases: %s", error)

    def _apply(self, tick: Tick) -> None:
        now, before = self._clock.monotonic(), self.tenures
        # Leases that ran out here may have been somebody else's since, even if they are ours again.
        new = tick.owned if now >= self._valid_until else tick.taken
        held = frozenset() if self._retiring else tick.owned
        kept = {one: tenure for one, tenure in before.items() if one in held and one not in new}
        self.tenures = kept | {one: Tenure() for one in sorted(held - kept.keys())}
        self._valid_until = now + tick.valid_for_s
        self._fenced = tick.fenced
        if tick.fenced:
            log.error("%s: a later life of this worker has begun", self.me)
        elif self.tenures != before:
            log.info("%s owns partitions %s", self.me, sorted(held))
        self._changed.set()
