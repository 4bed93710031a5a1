"""One suite, every backend."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from infra.clock import ManualClock
from infra.leases import RedisLeases
from infra.memory_leases import MemoryLeases
from tests.contracts.lease_worlds import LIFE_TTL_MS, TTL_MS, Pool
from tests.contracts.result_worlds import World, memory_world, redis_world


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The result path, in memory and on Redis."""
    if request.param == "memory":
        async with memory_world() as world:
            yield world
    else:
        async with redis_world(request.getfixturevalue("redis_url")) as world:
            yield world


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[Pool]:
    if request.param == "memory":
        clock = ManualClock()
        board = MemoryLeases(clock, ttl_ms=TTL_MS, life_ttl_ms=LIFE_TTL_MS)

        async def advance(seconds: float) -> None:
            clock.advance(seconds)

        yield Pool(lambda: board, advance)
        return
    redis = Redis.from_url(request.getfixturevalue("redis_url"))
    model = f"m-{uuid.uuid4().hex[:8]}"
    # Real leases expire by real time, so here the sleep is the thing under test.
    yield Pool(lambda: RedisLeases(redis, model, ttl_ms=TTL_MS, life_ttl_ms=LIFE_TTL_MS), asyncio.sleep)
    await redis.aclose()
