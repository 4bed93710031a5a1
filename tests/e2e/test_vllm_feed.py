"""The real engine's cache in the index: what it stores, what it evicts, what is left of it after its death."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from infra import keys, model_files
from infra.clock import SystemClock
from infra.metrics import Metrics
from infra.ports import Incarnation
from infra.prefix_index import PrefixIndex
from infra.redis_client import connect
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.manifest import Manifest
from schemas.steering import WorkerView
from tests import models
from tests.waiting import until
from topics.steering import namespaces
from topics.steering.blocks import begin, extend
from workers.engine import End, EngineDied
from workers.engines.vllm import VllmEngine
from workers.job_queue import JobQueue
from workers.presence import Presence

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.services,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
    # vLLM and torch warn about themselves while they start; that is not ours to mend.
    pytest.mark.filterwarnings("default"),
]

ME = Incarnation("w", 1)
BLOCK = 32
# 30 layers x 3 heads x 64 values x 2 (keys, values) x 4 bytes x 32 tokens a block, and what vLLM keeps for itself.
BLOCKS = 24
KV_BYTES = BLOCKS * 30 * 3 * 64 * 2 * 4 * BLOCK


def small() -> Manifest:
    """The real model with a cache of two dozen blocks."""
    whole = models.manifest()
    return msgspec.structs.replace(
        whole,
        id=f"{whole.id}-{uuid4().hex[:8]}",
        engine=msgspec.structs.replace(whole.engine, cpu_kv_bytes=KV_BYTES),
        limits=msgspec.structs.replace(whole.limits, context_tokens=512),
    )


class World:
    """One worker's engine, its presence in the index, and what a gateway sees of it."""

    def __init__(self, engine: VllmEngine, redis: Redis, manifest: Manifest, path: Path) -> None:
        self.engine = engine
        self.manifest = manifest
        self.metrics = Metrics()
        self._redis = redis
        self._space = space = namespaces.key_space(manifest, model_files.chat_template(path))
        self._index = PrefixIndex(redis, manifest.id)
        self._presence = Presence(self._index, space, ME, engine, JobQueue(), self.metrics, SystemClock())

    async def live(self) -> None:
        await self._redis.set(keys.alive(self.manifest.id, ME.worker), ME.epoch)
        await self._presence.run()

    def job(self, prompt: list[int], tenant: str = "") -> GenerateJob:
        head = Head(uuid4().hex, self.manifest.id, deadline_at=2e9, created_at=0.0, reply_to="", tenant=tenant)
        return GenerateJob(head, prompt, Sampling(max_tokens=2, temperature=0.0))

    async def ask(self, prompt: list[int], tenant: str = "") -> End:
        job = self.job(prompt, tenant)
        async with aclosing(self.engine.run(job)) as steps:
            *_, last = [step async for step in steps]
        assert isinstance(last, End)
        return last

    def keys(self, prompt: list[int], tenant: str = "") -> list[bytes]:
        root = begin(namespaces.of(self._space.plain, self.job(prompt, tenant)))
        return extend(root, prompt, self._space.block_tokens).keys

    async def view(self, prompt: list[int]) -> WorkerView | None:
        views = (await self._index.look(self.keys(prompt), [ME])).views
        return views[0] if views else None

    async def matches(self, prompt: list[int], blocks: int) -> bool:
        view = await self.view(prompt)
        return view is not None and view.matched_blocks == blocks

    async def held(self) -> set[bytes]:
        """All that the index says this worker holds."""
        slot = await self._redis.hget(f"{self._index.prefix}slots", str(ME))
        return set(await self._redis.smembers(f"{self._index.prefix}held:{slot.decode()}")) if slot else set()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(model_dir: Path, redis_url: str) -> AsyncIterator[World]:
    manifest, redis = small(), connect(redis_url)
    engine = VllmEngine(manifest, model_dir / models.MODEL)
    await engine.start(lambda phase: None)
    one = World(engine, redis, manifest, model_dir / models.MODEL)
    living = asyncio.create_task(one.live())
    yield one
    living.cancel()
    await asyncio.wait([living])
    await engine.close()
    await redis.aclose()


def prompt(number: int) -> list[int]:
    return [1_000 + 400 * number + each for each in range(300)]


async def test_after_one_request_exactly_the_full_blocks_of_its_prompt_are_found(world: World) -> None:
    assert world.engine.cache.block_tokens == BLOCK and world.engine.cache.total_blocks == BLOCKS
    await world.ask(prompt(0))
    await until(lambda: world.matches(prompt(0), 9))
    assert await world.held() == set(world.keys(prompt(0)))
    assert (await world.ask(prompt(0))).cached_tokens == 9 * BLOCK
    half = prompt(0)[: 5 * BLOCK] + prompt(1)
    assert await world.matches(half, 5)


async def test_what_holds_nothing_is_what_is_neither_cached_nor_vllms_own(world: World) -> None:
    await until(lambda: world.matches(prompt(0), 9))

    async def told() -> bool:
        view = await world.view([])
        return view is not None and view.unused_blocks == BLOCKS - 1 - len(await world.held())

    await until(told)


async def test_what_a_tenant_has_asked_is_cached_and_indexed_for_that_tenant_only(world: World) -> None:
    assert (await world.ask(prompt(0), "acme")).cached_tokens == 0

    async def indexed() -> bool:
        return set(world.keys(prompt(0), "acme")) < await world.held()

    await until(indexed)
    assert (await world.ask(prompt(0), "acme")).cached_tokens == 9 * BLOCK
    assert (await world.ask(prompt(0), "other")).cached_tokens == 0


async def test_the_speed_is_learned_from_real_requests(world: World) -> None:
    prior = world.engine.load().speed
    await world.ask(prompt(0)[:40] + prompt(2)[:200])
    assert world.engine.load().speed != prior


async def test_what_the_engine_evicts_is_gone_and_what_is_found_is_what_it_has(world: World) -> None:
    for number in range(1, 5):
        await world.ask(prompt(number))
    await until(lambda: world.matches(prompt(4), 9))
    await until(lambda: world.matches(prompt(0), 0))
    assert len(await world.held()) < BLOCKS
    for number in (4, 3):
        view = await world.view(prompt(number))
        assert view is not None
        assert (await world.ask(prompt(number))).cached_tokens == view.matched_blocks * BLOCK
    await until(lambda: world.engine.load().kv_unused * BLOCKS < 2)  # the last answer's end was in a block of its own
    page = world.metrics.render().decode()
    assert "triptych_feed_gaps_total{" not in page and "triptych_feed_skipped_blocks_total{" not in page


async def test_after_a_death_and_a_restart_nothing_is_left_and_the_new_cache_is_heard(world: World) -> None:
    assert await world.held()
    next(one for one in models.engine_processes() if one.name().startswith("VLLM::Worker")).kill()
    with pytest.raises(EngineDied):
        await world.ask(prompt(5))
    await world.engine.restart(lambda phase: None)
    assert await world.held() == set()
    await world.ask(prompt(6))
    await until(lambda: world.matches(prompt(6), 9))
    assert await world.held() == set(world.keys(prompt(6)))
