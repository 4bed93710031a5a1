"""A worker in the prefix index: from the engine to what decisions see, and what is left when it goes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from infra import keys
from infra.clock import SystemClock
from infra.metrics import Metrics
from infra.ports import Incarnation
from infra.prefix_index import PrefixIndex
from infra.redis_client import connect
from schemas.manifest import Limits, Manifest, Source
from schemas.steering import Ask, WorkerView
from tests.waiting import until
from topics.steering import namespaces
from topics.steering.blocks import begin, extend
from topics.steering.namespaces import KeySpace
from topics.steering.speed import Speed
from workers import presence as module
from workers.engine import CacheBatch, CacheShape, Load, Stored
from workers.engines.stub import StubEngine
from workers.job_queue import JobQueue
from workers.presence import Presence

pytestmark = pytest.mark.services

TOKENS = list(range(96))
KEYS = [b"promised"]
ME = Incarnation("w", 1)


class Engine(StubEngine):
    """Has a cache of half our block size, which holds three of our blocks."""

    cache = CacheShape(total_blocks=20, block_tokens=16)

    def load(self) -> Load:
        """Ten of its twenty blocks are referenced, of which four are not full and have no key; two hold nothing."""
        return Load(running=3, waiting=2, kv_usage=0.5, kv_unused=0.1, speed=Speed(1_000.0, 0.002))

    async def cache_events(self) -> AsyncGenerator[CacheBatch]:
        yield CacheBatch([Stored(range(6), None, TOKENS, 16)])


def space_of(manifest: Manifest) -> KeySpace:
    return namespaces.key_space(manifest, "template")


@pytest.fixture
def manifest() -> Manifest:
    return Manifest(f"m-{uuid4().hex}", Source("hf", repo="r"), Limits(context_tokens=512))


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def index(redis: Redis, manifest: Manifest) -> PrefixIndex:
    return PrefixIndex(redis, manifest.id)


@pytest.fixture
def be_there(index: PrefixIndex, redis: Redis, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> "BeThere":
    monkeypatch.setattr(module, "REPORT_S", 0.02)
    monkeypatch.setattr(module, "SWEEP_S", 0.02)

    @asynccontextmanager
    async def there(me: Incarnation, engine: StubEngine) -> AsyncIterator[Presence]:
        await redis.set(keys.alive(manifest.id, me.worker), me.epoch)
        presence = Presence(index, space_of(manifest), me, engine, JobQueue(), Metrics(), SystemClock())
        task = asyncio.create_task(presence.run())
        yield presence
        task.cancel()
        await asyncio.wait([task])

    return there


BeThere = Callable[[Incarnation, StubEngine], "asynccontextmanager[Presence]"]


async def views(index: PrefixIndex, manifest: Manifest, *workers: Incarnation) -> list[WorkerView]:
    space = space_of(manifest)
    asked = extend(begin(space.plain), TOKENS, space.block_tokens).keys
    return (await index.look(asked, workers)).views


async def test_what_the_engine_holds_and_tells_of_itself_is_what_decisions_see(
    index: PrefixIndex, manifest: Manifest, be_there: BeThere
) -> None:
    async with be_there(ME, Engine(4, 0.01)):

        async def complete() -> bool:
            return [(each.matched_blocks, each.unused_blocks) for each in await views(index, manifest, ME)] == [(3, 1)]

        await until(complete)
        (view,) = await views(index, manifest, ME)
    assert (view.total_blocks, view.referenced_blocks, view.waiting, view.running) == (10, 5, 2, 3)
    assert (view.prefill_tokens_per_s, view.step_per_sequence_s) == (1_000.0, 0.002)


async def test_a_worker_without_a_cache_is_there_too(index: PrefixIndex, manifest: Manifest, be_there: BeThere) -> None:
    async with be_there(ME, StubEngine(4, 0.01)):
        await until(lambda: has(index, manifest, ME))
        (view,) = await views(index, manifest, ME)
    assert view.matched_blocks == 0 and view.unused_blocks == view.total_blocks > 0


async def test_a_worker_that_leaves_is_gone_at_once_and_its_rows_soon(
    index: PrefixIndex, manifest: Manifest, redis: Redis, be_there: BeThere
) -> None:
    other = Incarnation("other", 1)
    async with be_there(ME, Engine(4, 0.01)) as leaving, be_there(other, StubEngine(4, 0.01)):
        await until(lambda: has(index, manifest, ME))
        await until(lambda: rows(redis, index, more_than=0))
    await leaving.close()
    assert await views(index, manifest, ME) == []
    async with be_there(other, StubEngine(4, 0.01)):
        await until(lambda: clean(redis, index))


async def test_a_killed_workers_life_ends_with_its_lease_and_its_load_with_it(
    index: PrefixIndex, manifest: Manifest, redis: Redis, be_there: BeThere
) -> None:
    other = Incarnation("other", 1)
    async with be_there(ME, Engine(4, 0.01)):
        await until(lambda: has(index, manifest, ME))
        (view,) = await views(index, manifest, ME)
        assert await index.reserve("t", Ask(96, 3, 32, 10.0), KEYS, view.worker, None, 60.0) == "reserved"
    assert await has(index, manifest, ME)
    async with be_there(other, StubEngine(4, 0.01)):
        await until(lambda: has(index, manifest, other))
        assert await has(index, manifest, ME)  # its lease has not run out
        await redis.delete(keys.alive(manifest.id, ME.worker))
        await until(lambda: clean(redis, index))
        assert await views(index, manifest, ME) == []
        assert await has(index, manifest, other)


async def test_a_worker_whose_lease_was_late_comes_back_with_all_it_holds(
    index: PrefixIndex, manifest: Manifest, redis: Redis, be_there: BeThere
) -> None:
    async with be_there(ME, Engine(4, 0.01)):

        async def complete() -> bool:
            return [each.matched_blocks for each in await views(index, manifest, ME)] == [3]

        await until(complete)
        await redis.delete(keys.alive(manifest.id, ME.worker))

        async def forgotten() -> bool:
            return not await complete()

        await until(forgotten)
        await redis.set(keys.alive(manifest.id, ME.worker), ME.epoch)
        await until(complete)


async def test_one_sweep_does_for_all(index: PrefixIndex) -> None:
    assert await index.sweep(60.0) == 0
    assert await index.sweep(60.0) is None


async def has(index: PrefixIndex, manifest: Manifest, worker: Incarnation) -> bool:
    return len(await views(index, manifest, worker)) == 1


async def rows(redis: Redis, index: PrefixIndex, more_than: int) -> bool:
    return len([key async for key in redis.scan_iter(f"{index.prefix}b:*")]) > more_than


async def clean(redis: Redis, index: PrefixIndex) -> bool:
    return not await rows(redis, index, more_than=0) and not await redis.exists(f"{index.prefix}dirty")
