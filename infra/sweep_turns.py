"""The store is swept now and then by one of all gateways; which one, Redis tells."""

import logging

from redis.asyncio import Redis

from infra import keys
from infra.redis_client import answered
from infra.repeated import Repeated
from infra.sweeper import Sweeper

log = logging.getLogger(__name__)


class SweepTurns:
    """`start` begins to take turns, at most one every `every_s` among all processes, none when that is 0; `close` ends
    it at once."""

    def __init__(self, sweeper: Sweeper, redis: Redis, every_s: int) -> None:
        self._sweeper = sweeper
        self._redis = redis
        self._every_s = every_s
        self._turns = Repeated(self._turn, every_s, "sweep turns")

    def start(self) -> None:
        if self._every_s:
            self._turns.begin()

    async def close(self) -> None:
        await self._turns.close()

    async def _turn(self) -> None:
        try:
            if await self._my_turn():
                await self._sweep()
        except Exception as error:  # noqa: BLE001  # whatever it is: requests are served without, and turns go on
            log.warning("the object store was not swept: %r", error)

    async def _my_turn(self) -> bool:
        async with answered():
            return bool(await self._redis.set(keys.sweep(), 1, nx=True, ex=self._every_s))

    async def _sweep(self) -> None:
        for one in await self._sweeper.sweep():
            if one.expired:
                log.info("swept %d of %d objects of %s", one.expired - len(one.failures), one.objects, one.prefix)
            for key, why in one.failures.items():
                log.warning("%s could not be deleted: %s", key, why)
