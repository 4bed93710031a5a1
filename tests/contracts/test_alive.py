"""One suite for both kinds of Lives: the in-process twin and Redis, each with the claims that go by it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from infra.alive import MemoryLives, RedisLives, keep_alive
from infra.faults import Unavailable
from infra.leases import RedisLeases
from infra.memory import MemoryHub, MemoryResults
from infra.metrics import Metrics
from infra.ports import Incarnation, Lives, Outlived, Results
from infra.redis_client import connect
from infra.results import RedisResults
from schemas.jobs import Head
from tests.contracts.result_worlds import new_model

TTL_MS = 400
FAR = 4_000_000_000.0


class World(msgspec.Struct):
    """`begin` starts a process of that name; `kill` is kill -9 and the time until it is noticed."""

    model: str
    results: Results
    begin: Callable[[str], Lives]
    kill: Callable[[str], Awaitable[None]]

    def head(self, request_id: str = "r", model: str = "") -> Head:
        return Head(request_id, model or self.model, deadline_at=FAR, created_at=0.0, reply_to="gw")

    async def claim(self, by: Incarnation, model: str = "") -> str:
        return (await self.results.claim(self.head(model=model), by, 9)).state


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    model = new_model()
    if request.param == "memory":
        hub = MemoryHub()

        async def forget(worker: str) -> None:
            for place in [place for place in hub.alive if place[1] == worker]:
                del hub.alive[place]

        yield World(model, MemoryResults(hub), lambda worker: MemoryLives(hub, worker), forget)
        return
    redis = connect(request.getfixturevalue("redis_url"))

    async def expire(_: str) -> None:
        await asyncio.sleep(TTL_MS / 1000 + 0.1)  # real leases expire by real time: it is the thing under test

    yield World(
        model,
        RedisResults(redis, Metrics()),
        lambda worker: RedisLives(redis, worker, ttl_ms=TTL_MS),
        expire,
    )
    await redis.aclose()


async def test_what_a_living_worker_claimed_is_busy_in_every_model_it_works_for(world: World) -> None:
    a, b = world.begin("a"), world.begin("b")
    for model in (world.model, f"{world.model}-2"):
        assert await world.claim(await a.of(model), model) == "mine"
        assert await world.claim(await b.of(model), model) == "busy"


async def test_a_life_is_the_same_however_often_it_is_asked_for(world: World) -> None:
    a = world.begin("a")
    first, second = await asyncio.gather(a.of(world.model), a.of(world.model))
    assert first == second == await a.of(world.model)
    await a.renew()


async def test_what_a_dead_worker_claimed_is_free_once_it_is_noticed(world: World) -> None:
    a, b = world.begin("a"), world.begin("b")
    assert await world.claim(await a.of(world.model)) == "mine"
    await world.kill("a")
    assert await world.claim(await b.of(world.model)) == "mine"


async def test_what_a_worker_claimed_is_free_at_once_when_it_leaves(world: World) -> None:
    a, b = world.begin("a"), world.begin("b")
    assert await world.claim(await a.of(world.model)) == "mine"
    await a.end()
    await a.end()
    assert await world.claim(await b.of(world.model)) == "mine"


async def test_a_restart_under_the_same_name_frees_the_earlier_lifes_claims_and_outlives_it(world: World) -> None:
    old, new = world.begin("a"), world.begin("a")
    assert await world.claim(await old.of(world.model)) == "mine"
    again = await new.of(world.model)
    assert again.epoch > (await old.of(world.model)).epoch
    assert await world.claim(again) == "mine"
    with pytest.raises(Outlived):
        await old.renew()
    await old.end()  # must not end the new life
    assert await world.claim(await world.begin("b").of(world.model)) == "busy"


async def test_a_worker_that_went_unnoticed_for_a_while_lives_again_with_its_next_renewal(world: World) -> None:
    a, b = world.begin("a"), world.begin("b")
    assert await world.claim(await a.of(world.model)) == "mine"
    await world.kill("a")
    await a.renew()
    assert await world.claim(await b.of(world.model)) == "busy"


async def test_keeping_alive_goes_on_while_the_store_is_away_and_stops_a_process_that_was_outlived(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a = world.begin("a")
    await a.of(world.model)

    class Flaky:
        asked = 0

        async def of(self, model: str) -> Incarnation:
            return await a.of(model)

        async def renew(self) -> None:
            Flaky.asked += 1
            if Flaky.asked == 1:
                raise Unavailable("nobody there")
            await world.begin("a").of(world.model)
            await a.renew()

        async def end(self) -> None: ...

    with pytest.raises(Outlived):
        await asyncio.wait_for(keep_alive(Flaky()), 5)
    assert "nobody there" in caplog.text


@pytest.mark.services
async def test_such_a_worker_never_counts_for_the_share_of_partitions(redis_url: str) -> None:
    redis, model = connect(redis_url), new_model()
    decoder = RedisLives(redis, "decoder", ttl_ms=TTL_MS)
    await decoder.of(model)
    await decoder.renew()
    view = await RedisLeases(redis, model, ttl_ms=TTL_MS).view(4)
    assert not view.beats and not view.owners
    await redis.aclose()
