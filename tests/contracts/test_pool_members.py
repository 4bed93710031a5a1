"""One suite for both kinds of PoolMembers: the in-process twin and Redis."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from redis.asyncio import Redis

from infra import keys
from infra.clock import ManualClock
from infra.pool_members import Membership, MemoryPoolMembers, RedisPoolMembers
from infra.pool_ports import PoolMembers
from infra.redis_client import connect

TTL_MS = 400


class World(msgspec.Struct):
    """`expire` lets so much time pass that a worker that says nothing more is taken for dead."""

    members: PoolMembers
    expire: Callable[[], Awaitable[None]]
    pool: str = msgspec.field(default_factory=lambda: f"encode.{uuid.uuid4().hex}")

    async def there(self) -> set[str]:
        (found,) = await self.members.look([self.pool])
        return set(found)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        clock = ManualClock()

        async def pass_time() -> None:
            clock.advance(TTL_MS / 1000 + 0.1)

        return World(MemoryPoolMembers(clock, ttl_ms=TTL_MS), pass_time)

    async def expire() -> None:
        await asyncio.sleep(TTL_MS / 1000 + 0.1)  # real leases expire by real time: it is the thing under test

    return World(RedisPoolMembers(request.getfixturevalue("redis"), ttl_ms=TTL_MS), expire)


async def test_who_works_where_is_seen_for_all_pools_in_their_order(world: World) -> None:
    await world.members.stay(world.pool, "a")
    await world.members.stay(world.pool, "b")
    await world.members.stay(world.pool, "b")
    await world.members.stay(f"{world.pool}-2", "c")
    found = await world.members.look([f"{world.pool}-2", f"{world.pool}-3", world.pool])
    assert [set(one) for one in found] == [{"c"}, set(), {"a", "b"}]
    assert await world.members.look([]) == []


async def test_a_worker_that_leaves_is_gone_at_once_and_the_others_are_not(world: World) -> None:
    await world.members.stay(world.pool, "a")
    await world.members.stay(world.pool, "b")
    await world.members.leave(world.pool, "a")
    await world.members.leave(world.pool, "a")
    assert await world.there() == {"b"}


async def test_a_worker_that_says_nothing_more_is_gone_after_its_time_and_may_come_back(world: World) -> None:
    await world.members.stay(world.pool, "a")
    await world.expire()
    assert await world.there() == set()
    await world.members.stay(world.pool, "b")
    assert await world.there() == {"b"}
    await world.members.stay(world.pool, "a")
    assert await world.there() == {"a", "b"}


async def test_a_renewal_after_the_farewell_brings_nobody_back(world: World) -> None:
    member = Membership(world.members, world.pool, "a")
    await member.renew()
    assert await world.there() == {"a"}
    await asyncio.gather(member.renew(), member.leave(), member.renew())
    assert await world.there() == set()


@pytest.mark.services
async def test_nothing_of_a_pool_stays_in_redis_once_all_have_gone_or_died(redis: Redis) -> None:
    members, pools = RedisPoolMembers(redis, ttl_ms=TTL_MS), [f"encode.{uuid.uuid4().hex}" for _ in range(2)]
    await members.stay(pools[0], "left")
    await members.leave(pools[0], "left")
    await members.stay(pools[1], "died")
    assert 0 < await redis.pttl(keys.pool_members(pools[1])) <= TTL_MS
    await asyncio.sleep(TTL_MS / 1000 + 0.1)  # as above
    assert await redis.exists(*map(keys.pool_members, pools)) == 0


@pytest.mark.services
async def test_the_dead_are_swept_out_by_those_who_live(redis: Redis) -> None:
    """Names come from host and process id: over the months, a pool that is never empty has seen many."""
    pool = f"encode.{uuid.uuid4().hex}"
    await RedisPoolMembers(redis, ttl_ms=1).stay(pool, "died")
    await asyncio.sleep(0.01)  # as above
    await RedisPoolMembers(redis).stay(pool, "lives")
    assert await redis.zrange(keys.pool_members(pool), 0, -1) == [b"lives"]
