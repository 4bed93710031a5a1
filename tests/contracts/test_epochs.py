"""Epochs of workers: none is given twice, whatever has been forgotten, and names do not stay for ever."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from infra import keys
from infra.leases import RedisLeases
from tests.contracts.lease_worlds import LIFE_TTL_MS, PARTITIONS, TTL_MS, Pool, beat_of


async def test_no_epoch_is_given_twice_even_to_a_name_that_has_been_forgotten(pool: Pool) -> None:
    old = await pool.join("a")
    await old.tick()
    await pool.forget_names()
    new = await pool.join("a")
    assert new.me.epoch > old.me.epoch
    assert (await old.tick()).fenced
    assert (await pool.join("b")).me.epoch > new.me.epoch  # over all names: forgetting one cannot bring an old one back


async def test_the_name_of_whoever_ticks_is_not_forgotten(pool: Pool) -> None:
    old, new = await pool.join("a"), await pool.join("a")
    for _ in range(6):
        await pool.sleep(LIFE_TTL_MS / 1000 / 4)
        assert not (await new.tick()).fenced
    assert (await old.tick()).fenced


async def test_an_old_life_that_comes_back_first_after_its_name_was_forgotten_does_not_fence_the_new_one(
    pool: Pool,
) -> None:
    old, new = await pool.join("a"), await pool.join("a")
    await pool.forget_names()
    assert not (await old.tick()).fenced
    assert not (await new.tick()).fenced
    assert (await old.tick()).fenced


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.mark.services
async def test_names_of_processes_that_are_gone_take_no_room_for_ever(redis: Redis) -> None:
    model = f"m-{uuid.uuid4().hex[:8]}"
    leases = RedisLeases(redis, model, ttl_ms=TTL_MS, life_ttl_ms=LIFE_TTL_MS)
    for number in range(50):
        gone = await leases.join(f"pod-{number}")
        await leases.tick(gone, PARTITIONS, beat_of(gone))
    await asyncio.sleep(LIFE_TTL_MS / 1000 + 0.05)
    me = await leases.join("a")
    await leases.tick(me, PARTITIONS, beat_of(me))
    left = {key.decode() async for key in redis.scan_iter(f"tri:{{{model}}}:*") if b"pod" in key}
    assert left == set()
    assert (await redis.hkeys(keys.beats(model)), await redis.zcard(keys.workers(model))) == ([b"a"], 1)
    assert await redis.type(keys.epochs(model)) == b"string"


@pytest.mark.services
async def test_a_wiped_redis_does_not_fence_the_living_but_a_life_after_the_wipe_does(redis: Redis) -> None:
    model = f"m-{uuid.uuid4().hex[:8]}"
    leases = RedisLeases(redis, model, ttl_ms=TTL_MS)
    await leases.join("a")
    me = await leases.join("a")
    await leases.tick(me, PARTITIONS, beat_of(me))
    async for key in redis.scan_iter(f"tri:{{{model}}}:*"):
        await redis.delete(key)
    assert not (await leases.tick(me, PARTITIONS, beat_of(me))).fenced
    await redis.delete(keys.epochs(model), keys.life(model, "a"))
    newer = await leases.join("a")
    assert newer.epoch > me.epoch
    assert (await leases.tick(me, PARTITIONS, beat_of(me))).fenced
