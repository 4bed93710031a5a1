"""What must hold for any history: Lua decides as Python does, and counters neither leak nor go below zero."""

import asyncio
import random
from collections.abc import AsyncIterator
from importlib import resources
from uuid import uuid4

import msgspec
import pytest
from redis.asyncio import Redis

from infra.ports import Incarnation
from infra.prefix_index import CacheEvent, PrefixIndex
from infra.redis_client import connect
from schemas.steering import Ask, WorkerView
from topics.steering.affinity import AffinityParams, affinity
from topics.steering.rivals import least_load

pytestmark = pytest.mark.services

PARAMS = msgspec.structs.asdict(AffinityParams())
DRIVER = """
local ask = cmsgpack.unpack(ARGV[1])
local chosen, reason = affinity(ask, ask.views, ask.params, function(view) return view.family end)
return cmsgpack.pack({chosen, reason, ask.views[chosen].cost_s})
"""
LEAST_LOAD_DRIVER = """
local ask = cmsgpack.unpack(ARGV[1])
local chosen = least_load(ask, ask.views)
return cmsgpack.pack({chosen, ask.views[chosen].cost_s})
"""


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


def any_view(rng: random.Random, name: str, blocks: int) -> WorkerView:
    """Small numbers, so that ties and thresholds are met often."""
    inflight = rng.choice([0, 0, 1, 5, 60])
    return WorkerView(
        name,
        matched_blocks=rng.choice([0, 0, blocks, blocks // 2, rng.randint(0, blocks)]),
        inflight=inflight,
        uncached_tokens=rng.choice([0, 0, 64, 5_000, rng.randint(0, 300_000)]),
        family_inflight=rng.randint(0, inflight),
        prefill_tokens_per_s=rng.choice([15_928.0, 7_964.0, 333.3]),
        step_per_sequence_s=rng.choice([0.00022, 0.00044]),
        step_base_s=rng.choice([0.025, 0.05]),
        total_blocks=4_802,
        unused_blocks=rng.choice([0, 10, 480, 481, 4_802]),
        referenced_blocks=rng.choice([0, 7, 4_000]),
    )


async def test_lua_and_python_choose_the_same(redis: Redis) -> None:
    source = resources.files("infra").joinpath("lua", "affinity.lua").read_text()
    script, rng, reasons = redis.register_script(source + DRIVER), random.Random(11), set()
    for _ in range(2_000):
        blocks = rng.choice([0, 1, 10, 112])
        views = [any_view(rng, f"w{number}", blocks) for number in range(rng.randint(1, 6))]
        ask = Ask(blocks * 64 + rng.randint(0, 63), blocks, 64, rng.choice([0.0, 100.0, 1_000.0]))
        expected = affinity(ask, views, AffinityParams())
        question = {**msgspec.structs.asdict(ask), "views": [_in_lua(view) for view in views], "params": PARAMS}
        chosen, reason, cost_s = msgspec.msgpack.decode(await script(args=[msgspec.msgpack.encode(question)]))
        assert (views[chosen - 1].worker, reason.decode() if isinstance(reason, bytes) else reason) == (
            expected.worker,
            expected.reason,
        )
        assert cost_s == expected.cost
        reasons.add(expected.reason)
    assert reasons == {"cold", "home", "second_home", "stay"}


async def test_lua_and_python_find_the_same_worker_least_loaded(redis: Redis) -> None:
    source = resources.files("infra").joinpath("lua", "least_load.lua").read_text()
    script, rng, drawn = redis.register_script(source + LEAST_LOAD_DRIVER), random.Random(12), set()
    for _ in range(2_000):
        blocks = rng.choice([0, 1, 10, 112])
        views = [any_view(rng, f"w{number}", blocks) for number in range(rng.randint(1, 6))]
        ask = Ask(blocks * 64 + rng.randint(0, 63), blocks, 64, 100.0, draw=rng.random())
        expected = least_load(ask, views)
        question = {**msgspec.structs.asdict(ask), "views": [_in_lua(view) for view in views]}
        chosen, cost = msgspec.msgpack.decode(await script(args=[msgspec.msgpack.encode(question)]))
        assert (views[chosen - 1].worker, cost) == (expected.worker, expected.cost)
        drawn.add((len(views), chosen))
    assert len(drawn) == 21  # each of one to six


def _in_lua(view: WorkerView) -> dict[str, object]:
    return {
        "worker": view.worker,
        "matched": view.matched_blocks,
        "n": view.inflight,
        "u": view.uncached_tokens,
        "family": view.family_inflight,
        "rate": view.prefill_tokens_per_s,
        "per_sequence": view.step_per_sequence_s,
        "base": view.step_base_s,
        "total": view.total_blocks,
        "unused": view.unused_blocks,
        "referenced": view.referenced_blocks,
    }


class History:
    """Gateways and workers that crash between any two steps, driven by one random number generator."""

    def __init__(self, index: PrefixIndex, rng: random.Random) -> None:
        self.index = index
        self.rng = rng
        self.epochs = {"a": 1, "b": 1, "c": 1}
        self.numbers = {"a": 0, "b": 0, "c": 0}
        self.open: list[str] = []
        self.tickets = 0

    def alive(self) -> list[Incarnation]:
        return [Incarnation(name, epoch) for name, epoch in self.epochs.items()]

    def prompt(self) -> list[bytes]:
        family, length = self.rng.randrange(4), self.rng.choice([0, 1, 3, 9])
        return [(family * 100 + number + 1).to_bytes(8, "big") for number in range(length)]

    async def step(self) -> None:
        likely = [self.place, self.end] * 4 + [self.look_and_reserve, self.first, self.feed] * 2
        await self.rng.choice([*likely, self.die, self.expire, self.clean])()

    async def place(self) -> None:
        keys = self.prompt()
        again = self.open and self.rng.random() < 0.2  # the answer was lost: the gateway asks again
        ticket = self.rng.choice(self.open) if again else self.ticket()
        placed = await self.index.place(ticket, _ask(keys), keys, self.alive(), PARAMS, 60)
        assert placed
        self.open.append(ticket)

    async def look_and_reserve(self) -> None:
        keys = self.prompt()
        look = await self.index.look(keys, self.alive())
        version = None if self.rng.random() < 0.5 else look.version - self.rng.randrange(2)
        ticket = self.ticket()
        worker = self.rng.choice(look.views).worker
        if await self.index.reserve(ticket, _ask(keys), keys, worker, version, 60) == "reserved":
            self.open.append(ticket)

    async def first(self) -> None:
        if self.open:
            await self.index.release([self.rng.choice(self.open)], [])

    async def end(self) -> None:
        """Told once, twice, or by two processes at once; a crashed one never tells (see expire)."""
        if self.open:
            ticket = self.open.pop(self.rng.randrange(len(self.open)))
            told = self.rng.randint(1, 3)
            await asyncio.gather(
                *(self.index.release([ticket] * self.rng.randint(0, 1), [ticket]) for _ in range(told))
            )

    async def feed(self) -> None:
        name = self.rng.choice("abc")
        number = self.numbers[name] + 1
        event = CacheEvent(self.rng.choice("srrc"), b"".join(self.prompt()))  # type: ignore[arg-type]  # a letter of three
        if await self.index.apply(Incarnation(name, self.epochs[name]), number, [event]) == "ok":
            self.numbers[name] = number

    async def die(self) -> None:
        """Killed; back with an empty cache. Its requests are never ended for that life, or much later."""
        name = self.rng.choice("abc")
        if self.rng.random() < 0.5:
            await self.index.retire(Incarnation(name, self.epochs[name]))
        self.epochs[name] += 1
        self.numbers[name] = 0
        await self.index.register(Incarnation(name, self.epochs[name]), WorkerView("", total_blocks=50))

    async def expire(self) -> None:
        """A gateway dies right after its decision: nobody gives this one back."""
        keys = self.prompt()
        await self.index.place(self.ticket(), _ask(keys), keys, self.alive(), PARAMS, 0)

    async def clean(self) -> None:
        """Somebody clears what the dead have left; their slots are used again."""
        while await self.index.clean():
            pass

    def ticket(self) -> str:
        self.tickets += 1
        return f"t{self.tickets}"


def _ask(keys: list[bytes]) -> Ask:
    return Ask(len(keys) * 64 + 5, len(keys), 64, 100.0)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_crashes_counters_stay_above_zero_and_nothing_is_left_in_the_end(
    redis: Redis, seed: int
) -> None:
    model = f"m-{uuid4().hex}"
    index = PrefixIndex(redis, model)
    history = History(index, random.Random(seed))
    for worker in history.alive():
        await index.register(worker, WorkerView("", total_blocks=50))
    for _ in range(250):
        await history.step()
        for view in (await index.look([], history.alive())).views:
            assert view.inflight >= 0
            assert view.uncached_tokens >= 0
    await index.release([], history.open)
    for _ in range(40):
        views = (await index.look([], history.alive())).views  # each look reaps some that expired
    assert [(view.inflight, view.uncached_tokens) for view in views] == [(0, 0)] * 3
    while await index.clean():
        pass
    for worker in history.alive():
        await index.apply(worker, 0, [CacheEvent("c")])
    left = {key.decode().split(":ix:")[1] async for key in redis.scan_iter(f"tri:{{{model}}}:ix:*")}
    slots = {f"w:{slot.decode()}" for slot in await redis.hvals(f"tri:{{{model}}}:ix:slots")}
    assert left == {"slots", "version", *slots}
