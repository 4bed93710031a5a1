"""From the engine's events to what a decision sees, through losses on either side."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from infra.clock import SystemClock
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.patience import patiently
from infra.ports import Incarnation
from infra.prefix_index import CacheEvent, Fed, PrefixIndex
from infra.redis_client import connect
from schemas.steering import WorkerView
from tests.waiting import until
from topics.steering.blocks import Namespace, begin, extend
from workers import feed as feed_module
from workers.block_map import BlockMap
from workers.engine import CacheBatch, Cleared, Removed, Stored
from workers.engine import CacheEvent as EngineEvent
from workers.feed import Feed

pytestmark = pytest.mark.services

NAMESPACE = Namespace("m")
ME = Incarnation("w", 1)
BLOCK = 4


class Engine:
    """Stores and evicts prompts block by block, as vLLM does."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.held: dict[tuple[int, int], int] = {}  # (prompt, block) -> hash

    def tokens(self, prompt: int) -> list[int]:
        return [prompt * 1_000 + number for number in range(10 * BLOCK)]

    def step(self) -> CacheBatch:
        prompt, events = self.rng.randrange(6), list[EngineEvent]()
        have = sum(1 for owner, _ in self.held if owner == prompt)
        if self.rng.random() < 0.02:
            self.held.clear()
            events.append(Cleared())
        elif have < 10 and self.rng.random() < 0.7:
            events.append(self._store(prompt, have, self.rng.randint(have + 1, 10)))
        elif have:
            events.append(Removed([self.held.pop((prompt, have - 1))]))
        return CacheBatch(events)

    def _store(self, prompt: int, first: int, last: int) -> Stored:
        hashes = [self.rng.getrandbits(60) for _ in range(first, last)]
        self.held.update({(prompt, first + at): one for at, one in enumerate(hashes)})
        parent = self.held[(prompt, first - 1)] if first else None
        return Stored(hashes, parent, self.tokens(prompt)[first * BLOCK : last * BLOCK], BLOCK)

    def depths(self) -> list[int]:
        return [sum(1 for owner, _ in self.held if owner == prompt) for prompt in range(6)]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def index(redis: Redis) -> PrefixIndex:
    return PrefixIndex(redis, f"m-{uuid4().hex}")


@asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(feed.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def feed(index: PrefixIndex, metrics: Metrics) -> Feed:
    return feed_of(index, metrics)


def feed_of(index: PrefixIndex, metrics: Metrics) -> Feed:
    worker = WorkerView("", total_blocks=100)
    return Feed(index, "m", ME, lambda: worker, BlockMap(BLOCK, NAMESPACE), metrics, SystemClock())


async def seen(index: PrefixIndex, engine: Engine) -> list[int]:
    depths = []
    for prompt in range(6):
        keys = extend(begin(NAMESPACE), engine.tokens(prompt), BLOCK).keys
        views = (await index.look(keys, [ME])).views
        depths.append(views[0].matched_blocks if views else 0)
    return depths


async def settles(index: PrefixIndex, engine: Engine, feed: Feed) -> None:
    for _ in range(250):
        if not feed.pending and await seen(index, engine) == engine.depths():
            return
        await asyncio.sleep(0.02)
    assert await seen(index, engine) == engine.depths()


async def test_what_the_engine_holds_is_what_decisions_see(index: PrefixIndex, feed: Feed) -> None:
    engine = Engine(random.Random(1))
    async with running(feed):
        for number in range(300):
            feed.heard(engine.step())
            if number % 50 == 0:
                await settles(index, engine, feed)
        await settles(index, engine, feed)
    assert feed.resyncs == 1 and feed.lag_s == 0


async def test_a_gap_means_starting_from_nothing_never_from_something_untrue(
    index: PrefixIndex, feed: Feed, metrics: Metrics
) -> None:
    engine = Engine(random.Random(3))
    async with running(feed):
        for number in range(200):
            batch = engine.step()
            if number != 100:
                feed.heard(CacheBatch(batch.events, gap=number == 101))
        await until(lambda: feed.pending == 0, within_s=5.0)
        depths = await seen(index, engine)
    assert all(mine <= true for mine, true in zip(depths, engine.depths(), strict=True))
    page = metrics.render().decode()
    assert 'triptych_feed_gaps_total{model="m"} 1.0' in page
    assert 'triptych_feed_skipped_blocks_total{model="m"' not in page


async def test_an_index_that_lost_everything_is_told_anew(index: PrefixIndex, feed: Feed, redis: Redis) -> None:
    engine = Engine(random.Random(4))
    async with running(feed):
        for _ in range(60):
            feed.heard(engine.step())
        await settles(index, engine, feed)
        await redis.delete(*[key async for key in redis.scan_iter(f"{index.prefix}*")])
        await settles(index, engine, feed)
    assert feed.resyncs == 2


async def test_a_feed_that_cannot_keep_up_drops_what_waits_and_tells_anew(
    index: PrefixIndex, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MAX_PENDING", 20)
    engine = Engine(random.Random(5))
    for _ in range(200):
        feed.heard(engine.step())
        assert feed.pending <= 20
    async with running(feed):
        await settles(index, engine, feed)


class _Flaky(PrefixIndex):
    """Loses questions and answers alike, as a broken connection does."""

    rng = random.Random(6)
    lost = 0

    async def apply(self, me: Incarnation, number: int, events: Sequence[CacheEvent]) -> Fed:
        fate = self.rng.random()
        if fate < 0.3:
            self.lost += 1
            raise Unavailable("the question is lost")
        answer = await super().apply(me, number, events)
        if fate < 0.6:
            self.lost += 1
            raise Unavailable("the answer is lost")
        return answer


async def test_lost_questions_and_answers_neither_skip_a_change_nor_make_one_twice(
    index: PrefixIndex, redis: Redis, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "patiently", partial(patiently, first_s=0.001))
    monkeypatch.setattr(feed_module, "IDLE_S", 0.005)
    flaky = _Flaky(redis, index.prefix.split("{")[1].split("}")[0])
    feed, engine = feed_of(flaky, metrics), Engine(random.Random(7))
    async with running(feed):
        for number in range(100):
            feed.heard(engine.step())
            await asyncio.sleep(0.003)
            if number % 10 == 9:
                await settles(index, engine, feed)
    assert flaky.lost > 5 and feed.resyncs == 1


async def test_many_changes_go_in_few_round_trips(index: PrefixIndex, redis: Redis, metrics: Metrics) -> None:
    class Counting(PrefixIndex):
        calls = 0

        async def apply(self, me: Incarnation, number: int, events: Sequence[CacheEvent]) -> Fed:
            self.calls += 1
            return await super().apply(me, number, events)

    counting = Counting(redis, index.prefix.split("{")[1].split("}")[0])
    feed, engine = feed_of(counting, metrics), Engine(random.Random(8))
    async with running(feed):
        await settles(index, engine, feed)
        before = counting.calls
        for _ in range(200):
            feed.heard(engine.step())
        await settles(index, engine, feed)
    assert counting.calls - before <= 4


async def test_a_feed_ends_when_its_name_has_a_later_life(index: PrefixIndex, feed: Feed) -> None:
    feed.heard(CacheBatch([Cleared()]))
    async with running(feed) as task:
        await settles(index, Engine(random.Random(0)), feed)
        assert (await index.look([], [ME])).views
        await index.register(Incarnation("w", 2), WorkerView("", total_blocks=100))
        await asyncio.wait_for(task, 5.0)
