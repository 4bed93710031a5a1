"""The result path in one piece, once in memory and once on Redis, with the accidents that tests need."""

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

from redis.asyncio import Redis

from infra import keys
from infra.clock import SystemClock
from infra.follower import RedisFollower
from infra.memory import MemoryFollower, MemoryHub, MemoryResults, MemorySignals
from infra.metrics import Metrics
from infra.ports import Claim, Follower, Incarnation, Outgoing, Results, Signals
from infra.redis_client import connect
from infra.results import RedisResults
from infra.signals import RedisSignals
from schemas.events import Event, Finished, Token, Usage
from schemas.jobs import Head
from tests.proxy import Proxy, proxy_to
from tests.waiting import until

ALICE, BOB = Incarnation("alice", 1), Incarnation("bob", 1)
# Longer than any test: what is found must not be found by the sweep, unless that is what is tested.
NO_SWEEP_S = 300.0


class RunningFollower(Follower, Protocol):
    """A follower, as far as both kinds tell about themselves."""

    @property
    def connected(self) -> bool: ...

    @property
    def following(self) -> int: ...


class World:
    """One model, one gateway. `deaf` loses what is published meanwhile."""

    def __init__(self, model: str, results: Results, follower: RunningFollower, signals: Signals) -> None:
        self.model = model
        self.results = results
        self.follower = follower
        self.signals = signals
        self._names = itertools.count()

    def head(self) -> Head:
        """Of a new request."""
        now = SystemClock().now()
        request_id = f"{self.model}-{next(self._names)}"
        return Head(
            request_id, self.model, deadline_at=now + 60, created_at=now, reply_to=gateway_of(self.model), streamed=True
        )

    async def claimed(self, by: Incarnation = ALICE) -> Head:
        """A new request that `by`, alive, runs as attempt 1."""
        head = self.head()
        await self.revive(by)
        assert await self.results.claim(head, by, 3) == Claim("mine", 1)
        return head

    async def append(self, head: Head, *events: Event) -> str:
        (state,) = await self.results.append([Outgoing(head, list(events))])
        return state

    async def revive(self, worker: Incarnation) -> None:
        raise NotImplementedError

    async def kill(self, worker: Incarnation) -> None:
        raise NotImplementedError

    async def trim(self, head: Head, keep: int) -> None:
        """Only the last `keep` batches can still be read."""
        raise NotImplementedError

    async def hang_up(self) -> None:
        """The follower loses its connection and cannot get a new one."""
        raise NotImplementedError

    async def reconnect(self) -> None:
        raise NotImplementedError


class MemoryWorld(World):
    def __init__(self, model: str) -> None:
        self.hub = MemoryHub()
        self._follower = MemoryFollower(self.hub, gateway_of(model))
        super().__init__(model, MemoryResults(self.hub), self._follower, MemorySignals(self.hub))

    async def revive(self, worker: Incarnation) -> None:
        self.hub.alive[(self.model, worker.worker)] = worker.epoch

    async def kill(self, worker: Incarnation) -> None:
        del self.hub.alive[(self.model, worker.worker)]

    async def trim(self, head: Head, keep: int) -> None:
        stream = self.hub.request(self.model, head.request_id).stream
        while len(stream) > keep:
            stream.popleft()

    async def hang_up(self) -> None:
        self._follower.hang_up()

    async def reconnect(self) -> None:
        await self._follower.start()


class RedisWorld(World):
    """The follower sits behind a proxy, the workers do not."""

    def __init__(self, model: str, redis: Redis, far_redis: Redis, proxy: Proxy, silence_s: float) -> None:
        self.metrics = Metrics()
        self.redis = redis
        self.proxy = proxy
        self.far_redis = far_redis
        follower = RedisFollower(far_redis, gateway_of(model), self.metrics, SystemClock(), silence_s=silence_s)
        super().__init__(model, RedisResults(redis, self.metrics), follower, RedisSignals(far_redis))

    def far_results(self) -> RedisResults:
        """Results of a worker that sits behind the proxy too."""
        return RedisResults(self.far_redis, self.metrics)

    async def forget(self, request_id: str) -> None:
        """What a flush does to one request."""
        await self.redis.delete(keys.request(self.model, request_id), keys.replay(self.model, request_id))

    async def revive(self, worker: Incarnation) -> None:
        await self.redis.set(keys.alive(self.model, worker.worker), worker.epoch)

    async def kill(self, worker: Incarnation) -> None:
        await self.redis.delete(keys.alive(self.model, worker.worker))

    async def trim(self, head: Head, keep: int) -> None:
        await self.redis.xtrim(keys.replay(self.model, head.request_id), maxlen=keep, approximate=False)

    async def hang_up(self) -> None:
        self.proxy.cut()
        await until(lambda: not self.follower.connected)

    async def reconnect(self) -> None:
        self.proxy.restore()
        await until(lambda: self.follower.connected)


@asynccontextmanager
async def memory_world() -> AsyncIterator[MemoryWorld]:
    world = MemoryWorld(new_model())
    await world.follower.start()
    yield world
    await world.follower.close()


@asynccontextmanager
async def redis_world(url: str, silence_s: float = NO_SWEEP_S) -> AsyncIterator[RedisWorld]:
    parts = urlsplit(url)
    async with proxy_to(parts.hostname or "127.0.0.1", parts.port or 6379) as proxy:
        redis = connect(url)
        far_redis = connect(parts._replace(netloc=f"127.0.0.1:{proxy.port}").geturl())
        world = RedisWorld(new_model(), redis, far_redis, proxy, silence_s)
        await world.follower.start()
        try:
            yield world
        finally:
            await world.follower.close()
            await redis.aclose()
            await far_redis.aclose()


def new_model() -> str:
    """A name that no other test uses."""
    return f"m-{uuid.uuid4().hex[:8]}"


def gateway_of(model: str) -> str:
    return f"gw-{model}"


def tokens(first: int, last: int, attempt: int = 1) -> list[Event]:
    """Token events with these seqs."""
    return [Token(attempt, seq, 0, f"t{seq} ", [seq]) for seq in range(first, last + 1)]


def finished(seq: int, attempt: int = 1) -> Finished:
    return Finished(attempt, seq, Usage(5, seq))
