"""Who works in the pools of encoders and decoders, and which requests wait there in vain."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from gateway import media_pools
from gateway.exchange import Interrupt, Interrupted
from gateway.media_pools import MediaPools
from infra.clock import ManualClock
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.pool_members import MemoryPoolMembers
from tests.waiting import until

VISION, AUDIO = "encode.vision", "encode.audio"


class Flaky(MemoryPoolMembers):
    away = False

    async def look(self, pools: Sequence[str]) -> list[Collection[str]]:
        if self.away:
            raise Unavailable("nobody there")
        return await super().look(pools)


class Request:
    """One that waits for some pools, and is interrupted or not."""

    def __init__(self, *pools: str) -> None:
        self.pools = set(pools)
        self.done: set[str] = set()
        self.checks = 0
        self.away = False
        self.fired: tuple[str, str] | None = None

    def awaited(self) -> Collection[str]:
        return self.pools

    async def still_awaits(self, pool: str) -> bool:
        self.checks += 1
        if self.away:
            raise Unavailable("the store is away")
        return pool not in self.done

    async def attend(self, pools: MediaPools) -> None:
        interrupt = Interrupt(60)
        try:
            with pools.guarding(self, interrupt):
                async with interrupt:
                    await asyncio.Event().wait()
        except Interrupted as why:
            self.fired = (why.cause, why.about)


class World:
    def __init__(self, wait_s: float = 30) -> None:
        self.clock = ManualClock()
        self.members = Flaky(self.clock, ttl_ms=3_600_000)
        self.pools = MediaPools([VISION, AUDIO], self.members, Metrics(), self.clock, wait_s)
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, *pools: str) -> Request:
        request = Request(*pools)
        self._tasks.append(asyncio.create_task(request.attend(self.pools)))
        await asyncio.sleep(0)
        return request

    async def after(self, seconds: float) -> None:
        """So much time passes, then the pools are looked at."""
        self.clock.advance(seconds)
        await self.pools.look()
        for _ in range(5):  # what has been fired ends
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def world():  # type: ignore[no-untyped-def]  # a generator of World
    one = World()
    yield one
    await one.close()


async def test_a_request_that_waits_where_nobody_works_is_given_up_after_the_grace(world: World) -> None:
    request = await world.begin(VISION)
    await world.after(0)
    await world.after(29)
    assert request.fired is None
    await world.after(1)
    assert request.fired == ("pool_unavailable", VISION)


async def test_the_grace_begins_with_the_request_however_long_the_pool_has_been_empty(world: World) -> None:
    """A pool may be scaled up from zero for the very job that the request has just sent."""
    await world.after(0)
    await world.after(1_000)
    request = await world.begin(VISION)
    await world.after(1)
    assert request.fired is None
    await world.after(30)
    assert request.fired == ("pool_unavailable", VISION)


async def test_while_anybody_works_there_a_request_waits(world: World) -> None:
    await world.members.stay(VISION, "a")
    request = await world.begin(VISION)
    for _ in range(3):
        await world.after(100)
    assert request.fired is None
    assert world.pools.workers(VISION) == 1
    await world.members.leave(VISION, "a")
    await world.after(1)
    await world.after(29)
    await world.members.stay(VISION, "b")  # just in time, for a moment
    await world.after(1)
    await world.members.leave(VISION, "b")
    await world.after(1)
    await world.after(29)
    assert request.fired is None
    await world.after(1)
    assert request.fired == ("pool_unavailable", VISION)


async def test_who_needs_another_pool_or_none_is_left_alone(world: World) -> None:
    await world.members.stay(AUDIO, "a")
    sound, text = await world.begin(AUDIO), await world.begin()
    for _ in range(3):
        await world.after(100)
    assert (sound.fired, text.fired) == (None, None)
    assert sound.checks == text.checks == 0


async def test_what_was_done_before_everybody_left_is_not_waited_for(world: World) -> None:
    request = await world.begin(VISION)
    request.done.add(VISION)
    await world.after(0)
    await world.after(31)
    await world.after(1)
    assert request.fired is None
    assert request.checks == 1  # and not with every look


async def test_while_nobody_can_say_who_works_nobody_waits_in_vain(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    request = await world.begin(VISION)
    await world.after(0)
    world.members.away = True
    for _ in range(3):
        await world.after(100)
    assert request.fired is None
    assert world.pools.workers(VISION) is None
    assert caplog.text.count("nobody there") == 1
    world.members.away = False
    await world.after(1)
    await world.after(29)
    assert request.fired is None
    await world.after(1)
    assert request.fired == ("pool_unavailable", VISION)


async def test_while_a_store_cannot_say_what_is_done_the_request_waits_on(world: World) -> None:
    request, other = await world.begin(VISION), await world.begin(VISION)
    request.away = True
    await world.after(0)
    await world.after(31)
    assert (request.fired, other.fired) == (None, ("pool_unavailable", VISION))
    request.away = False
    await world.after(1)
    assert request.fired == ("pool_unavailable", VISION)


async def test_without_a_grace_only_the_deadline_ends_the_wait() -> None:
    world = World(wait_s=0)
    request = await world.begin(VISION)
    for _ in range(3):
        await world.after(1_000)
    assert request.fired is None
    assert world.pools.workers(VISION) == 0
    await world.close()


async def test_pools_are_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_pools, "LOOK_S", 0.01)
    world = World()
    await world.pools.start()
    assert world.pools.workers(VISION) == 0
    await world.members.stay(VISION, "a")
    await until(lambda: world.pools.workers(VISION) == 1)
    await world.pools.close()
