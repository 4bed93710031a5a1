"""One suite for both kinds of Leases: the in-process twin and Redis."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from redis.asyncio import Redis

from infra import keys
from infra.faults import Unavailable
from infra.leases import RedisLeases
from tests.contracts.lease_worlds import PARTITIONS, TTL_MS, Pool, beat_of, settle


async def test_a_lone_worker_owns_every_partition_after_one_tick(pool: Pool) -> None:
    first = await (await pool.join("a")).tick()
    assert first.owned == frozenset(range(PARTITIONS)) == first.taken
    assert 0 < first.valid_for_s <= TTL_MS / 1000


async def test_what_is_renewed_is_not_called_taken(pool: Pool) -> None:
    a = await pool.join("a")
    await a.tick()
    assert (await a.tick()).taken == frozenset()


@pytest.mark.parametrize("workers", [2, 3, 5, 7, 12, 13])
async def test_shares_differ_by_at_most_one_and_cover_all(pool: Pool, workers: int) -> None:
    members = [await pool.join(f"w{number}") for number in range(workers)]
    owned = await settle(*members)
    assert Counter(one for share in owned for one in share) == Counter(range(PARTITIONS))
    assert {len(share) for share in owned} <= {PARTITIONS // workers, PARTITIONS // workers + 1}


async def test_no_two_workers_own_a_partition_while_one_joins(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    await settle(a, b)
    c = await pool.join("0-sorts-first")
    now: dict[str, frozenset[int]] = {}
    for member in (c, a, c, b, c, a, b, c):
        now[member.me.worker] = (await member.tick()).owned
        assert max(Counter(one for share in now.values() for one in share).values(), default=1) == 1
    assert [len(share) for share in now.values()] == [4, 4, 4]


async def test_who_is_at_its_share_keeps_exactly_what_it_holds(pool: Pool) -> None:
    a, b, c = [await pool.join(name) for name in "abc"]
    before = await settle(a, b, c, partitions=11)  # 4, 4, 3
    d = await pool.join("0-sorts-first")
    after = await settle(a, b, c, d, partitions=11)  # 3, 3, 3, 2
    assert all(later <= earlier for earlier, later in zip(before, after[:3], strict=True))
    assert sorted(map(len, after)) == [2, 3, 3, 3]


async def test_a_dead_workers_partitions_go_to_the_others_once_its_leases_end(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    await settle(a, b)
    for _ in range(4):
        await pool.some_time()
        last = await a.tick()
    assert last.owned == frozenset(range(PARTITIONS))
    assert (await a.leases.view(PARTITIONS)).beats.keys() == {"a"}


async def test_living_workers_never_take_what_is_still_leased(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    _, of_b = await settle(a, b)
    assert not (await a.tick()).owned & of_b


async def test_a_restart_takes_its_own_leases_over_with_the_first_tick_and_fences_the_old_life(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    of_a, of_b = await settle(a, b)
    again = await pool.join("a")
    assert again.me.epoch > a.me.epoch
    first = await again.tick()
    assert first.owned == of_a == first.taken
    old = await a.tick()
    assert old.fenced and not old.owned
    assert (await b.tick()).owned == of_b
    assert (await again.tick()) == msgspec.structs.replace(first, taken=frozenset(), valid_for_s=pytest.approx(0.4, 1))


async def test_a_fenced_life_can_neither_leave_nor_retire_for_the_new_one(pool: Pool) -> None:
    old = await pool.join("a")
    await old.tick()
    new = await pool.join("a")
    await new.tick()
    await old.leave()
    await old.retire()
    kept = await new.tick()
    assert len(kept.owned) == PARTITIONS and not kept.taken


async def test_a_clean_leave_frees_at_once(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    await settle(a, b)
    await b.leave()
    assert len((await a.tick()).owned) == PARTITIONS
    view = await a.leases.view(PARTITIONS)
    assert set(view.owners.values()) == {a.me} and view.beats.keys() == {"a"}


async def test_a_retired_worker_owns_nothing_and_is_no_target_but_ticks_on(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    await settle(a, b)
    await b.retire()
    assert len((await a.tick()).owned) == PARTITIONS
    later = await b.tick()
    assert later.owned == frozenset() and not later.fenced and later.valid_for_s > 0
    assert (await a.leases.view(PARTITIONS)).beats.keys() == {"a"}
    await a.leave()
    assert (await b.tick()).owned == frozenset()


async def test_after_an_outage_everybody_comes_back_to_what_it_had(pool: Pool) -> None:
    a, b, c = [await pool.join(name) for name in "abc"]
    before = await settle(a, b, c)
    await pool.expire()
    # The first to come back sees itself alone: it must not help itself to everything.
    assert list(reversed([(await member.tick()).owned for member in (c, b, a)])) == before
    assert await settle(a, b, c) == before


async def test_what_a_dead_worker_held_is_still_shared_out_after_an_outage(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    await settle(a, b)
    await pool.expire()
    await a.tick()
    assert len((await a.tick()).owned) == PARTITIONS


async def test_a_lease_that_ran_out_counts_as_taken_even_if_nobody_held_it_since(pool: Pool) -> None:
    a = await pool.join("a")
    await a.tick()
    await pool.expire()
    assert (await a.tick()).taken == frozenset(range(PARTITIONS))
    assert (await a.tick()).taken == frozenset()


async def test_a_topic_that_grew_is_shared_out_too(pool: Pool) -> None:
    a, b = await pool.join("a"), await pool.join("b")
    before = await settle(a, b, partitions=4)
    after = await settle(a, b, partitions=8)
    assert all(earlier <= later and len(later) == 4 for earlier, later in zip(before, after, strict=True))


async def test_gateways_see_owners_and_the_last_beats(pool: Pool) -> None:
    a = await pool.join("a")
    await a.leases.tick(a.me, 2, beat_of(a.me, running=3))
    await a.leases.tick(a.me, 2, beat_of(a.me, running=5))
    view = await pool.connect().view(2)
    assert view.owners == {0: a.me, 1: a.me}
    assert view.beats == {"a": beat_of(a.me, running=5)}


@pytest.mark.services
class TestOnRedis:
    """What only the real store has."""

    @pytest.fixture
    async def redis(self, redis_url: str) -> AsyncIterator[Redis]:
        client = Redis.from_url(redis_url)
        yield client
        await client.aclose()

    async def test_a_retired_life_stays_alive_for_claims_and_leaves_no_key_behind(self, redis: Redis) -> None:
        model = f"m-{uuid.uuid4().hex[:8]}"
        leases = RedisLeases(redis, model, ttl_ms=TTL_MS)
        me = await leases.join("a")
        assert await redis.get(keys.alive(model, "a")) == str(me.epoch).encode()
        await leases.tick(me, PARTITIONS, beat_of(me))
        await leases.retire(me, PARTITIONS, beat_of(me))
        await asyncio.sleep(TTL_MS / 1000 * 0.7)
        await leases.tick(me, PARTITIONS, beat_of(me))
        await asyncio.sleep(TTL_MS / 1000 * 0.7)  # past the first renewal, within the second
        assert await redis.get(keys.alive(model, "a")) == str(me.epoch).encode()
        assert await redis.exists(keys.workers(model), keys.beats(model), keys.lease(model, 0)) == 0
        await leases.leave(me)
        left = {key.decode() async for key in redis.scan_iter(f"tri:{{{model}}}:*")}
        assert left == {keys.epochs(model), keys.life(model, "a")}

    async def test_a_redis_that_is_gone_is_a_connection_error(self) -> None:
        client = Redis.from_url("redis://127.0.0.1:1/0")
        with pytest.raises(Unavailable):
            await RedisLeases(client, "m").join("a")
        await client.aclose()
