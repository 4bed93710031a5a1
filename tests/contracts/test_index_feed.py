"""From the engine's events to what a decision sees, through losses on either side."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from infra.clock import SystemClock
from infra.ports import Incarnation
from infra.prefix_index import PrefixIndex
from infra.redis_client import connect
from schemas.steering import WorkerView
from tests.waiting import until
from topics.steering import feed as feed_module
from topics.steering.blocks import Namespace, begin, extend
from topics.steering.feed import Feed
from topics.steering.mirror import CacheMirror, Cleared, EngineEvent, Removed, Stored, salt

pytestmark = pytest.mark.services

NAMESPACE = Namespace("m")
ME = Incarnation("w", 1)
BLOCK = 4


class Engine:
    """Stores and evicts prompts block by block and numbers its batches, as vLLM does."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.held: dict[tuple[int, int], int] = {}  # (prompt, block) -> hash
        self.sent: list[list[EngineEvent]] = []

    def tokens(self, prompt: int) -> list[int]:
        return [prompt * 1_000 + number for number in range(10 * BLOCK)]

    def step(self) -> None:
        prompt, events = self.rng.randrange(6), list[EngineEvent]()
        have = sum(1 for owner, _ in self.held if owner == prompt)
        if self.rng.random() < 0.02:
            self.held.clear()
            events.append(Cleared())
        elif have < 10 and self.rng.random() < 0.7:
            events.append(self._store(prompt, have, self.rng.randint(have + 1, 10)))
        elif have:
            events.append(Removed([self.held.pop((prompt, have - 1))]))
        self.sent.append(events)

    def _store(self, prompt: int, first: int, last: int) -> Stored:
        hashes = [self.rng.getrandbits(60) for _ in range(first, last)]
        self.held.update({(prompt, first + at): one for at, one in enumerate(hashes)})
        extras = [(salt(NAMESPACE),) if number == 0 else None for number in range(first, last)]
        parent = self.held[(prompt, first - 1)] if first else None
        return Stored(hashes, parent, self.tokens(prompt)[first * BLOCK : last * BLOCK], BLOCK, extras)

    def depths(self) -> list[int]:
        return [sum(1 for owner, _ in self.held if owner == prompt) for prompt in range(6)]

    def replay(self, number: int) -> Iterable[tuple[int, list[EngineEvent]]]:
        return list(enumerate(self.sent))[number:]


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


def feed_of(index: PrefixIndex, engine: Engine | None = None) -> Feed:
    worker = WorkerView("", total_blocks=100)
    return Feed(index, ME, worker, CacheMirror(BLOCK), SystemClock(), engine.replay if engine else None)


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


async def test_what_the_engine_holds_is_what_decisions_see(index: PrefixIndex) -> None:
    engine = Engine(random.Random(1))
    feed = feed_of(index)
    async with running(feed):
        for number in range(300):
            engine.step()
            feed.heard(number, engine.sent[number])
            if number % 50 == 0:
                await settles(index, engine, feed)
        await settles(index, engine, feed)
    assert feed.gaps == 0


async def test_lost_batches_are_asked_for_again_and_repeated_ones_ignored(index: PrefixIndex) -> None:
    engine = Engine(random.Random(2))
    feed = feed_of(index, engine)
    async with running(feed):
        for number in range(200):
            engine.step()
            if engine.rng.random() < 0.8 or number == 199:
                feed.heard(number, engine.sent[number])
                feed.heard(number, engine.sent[number])
        await settles(index, engine, feed)
    assert feed.gaps > 10


async def test_without_replay_a_gap_means_starting_from_nothing_never_from_something_untrue(index: PrefixIndex) -> None:
    engine = Engine(random.Random(3))
    feed = feed_of(index)
    async with running(feed):
        for number in range(200):
            engine.step()
            if number != 100:
                feed.heard(number, engine.sent[number])
        await until(lambda: feed.pending == 0, within_s=5.0)
        await asyncio.sleep(0)
        depths = await seen(index, engine)
    assert feed.gaps == 1
    assert all(mine <= true for mine, true in zip(depths, engine.depths(), strict=True))


async def test_an_index_that_lost_everything_is_told_anew(index: PrefixIndex, redis: Redis) -> None:
    engine = Engine(random.Random(4))
    feed = feed_of(index)
    async with running(feed):
        for number in range(60):
            engine.step()
            feed.heard(number, engine.sent[number])
        await settles(index, engine, feed)
        await redis.delete(*[key async for key in redis.scan_iter(f"{index.prefix}*")])
        await settles(index, engine, feed)
    assert feed.resyncs == 2


async def test_a_feed_that_cannot_keep_up_drops_what_waits_and_tells_anew(
    index: PrefixIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MAX_PENDING", 20)
    engine = Engine(random.Random(5))
    feed = feed_of(index)
    for number in range(200):
        engine.step()
        feed.heard(number, engine.sent[number])
        assert feed.pending <= 20
    async with running(feed):
        await settles(index, engine, feed)


async def test_a_feed_ends_when_its_name_has_a_later_life(index: PrefixIndex) -> None:
    feed = feed_of(index)
    feed.heard(0, [Cleared()])
    async with running(feed) as task:
        await settles(index, Engine(random.Random(0)), feed)
        assert (await index.look([], [ME])).views
        await index.register(Incarnation("w", 2), WorkerView("", total_blocks=100))
        await asyncio.wait_for(task, 5.0)
