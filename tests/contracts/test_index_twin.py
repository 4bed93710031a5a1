"""The index of the benchmark, in one process, beside the real one: both show the same and choose the same."""

import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from redis.asyncio import Redis

from infra.ports import Incarnation
from infra.prefix_index import CacheEvent, PrefixIndex
from infra.redis_client import connect
from schemas.steering import Ask, WorkerView
from tests.bench.steering import __main__ as bench
from tests.bench.steering.desks import LocalDesk
from tests.bench.steering.redis_desk import RedisDesk
from tests.bench.steering.traffic import Shape, grouped
from tests.bench.steering.workloads import WORKLOADS, Workload
from topics.steering.policy import Policy, parse_policy
from topics.steering.steerer import Steerer

pytestmark = pytest.mark.services

WORKERS = 4
BLOCK = 64


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


class Both:
    """One history, told to the real index and to its twin."""

    def __init__(self, redis: Redis, policy: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.real = PrefixIndex(redis, f"m-{uuid4().hex}", lag_s=1e6)
        self.steerer = Steerer(self.real, parse_policy(policy), random.Random(seed))
        self.desk = LocalDesk(WORKERS, parse_policy(policy), random.Random(seed))
        self.twin = self.desk.index
        self.lives = [Incarnation(str(slot), 1) for slot in range(WORKERS)]
        self.numbers = [0] * WORKERS
        self.open: list[str] = []
        self.tickets = 0
        self.reasons: set[str] = set()
        self.shown: set[int] = set()

    async def begin(self) -> None:
        for slot in range(WORKERS):
            view = self.view()
            await self.real.register(self.lives[slot], view)
            self.desk.begin(slot, view)

    async def step(self) -> None:
        likely = [self.place, self.feed, self.report, self.end] * 4 + [self.first] * 2
        await self.rng.choice([*likely, self.clear, self.die])()

    async def look(self) -> tuple[list[WorkerView], list[WorkerView]]:
        keys = self.prompt()
        real = (await self.real.look(_packed(keys), self.lives)).views
        self.shown |= {view.unused_blocks for view in real}
        return [msgspec.structs.replace(each, worker=each.worker[0]) for each in real], self.twin.look(
            keys, range(WORKERS)
        )

    async def place(self) -> None:
        keys, ticket = self.prompt(), f"t{self.tickets}"
        self.tickets += 1
        ask = Ask(len(keys) * BLOCK + self.rng.randrange(BLOCK), len(keys), BLOCK, self.rng.choice([1.0, 900.0]), "s")
        slots = sorted(self.rng.sample(range(WORKERS), self.rng.randint(1, WORKERS)))
        real = await self.steerer.place(ticket, ask, _packed(keys), [self.lives[slot] for slot in slots], 1e6)
        twin = self.desk.place(ticket, ask, keys, slots)
        assert real is not None
        assert (real.worker[0], real.matched_blocks, real.cost) == (twin.worker, twin.matched_blocks, twin.cost)
        self.reasons.add(twin.reason)
        self.open.append(ticket)

    async def feed(self) -> None:
        slot, keys, kind = self.rng.randrange(WORKERS), self.prompt(), self.rng.choice("ssr")
        await self._apply(slot, CacheEvent("s" if kind == "s" else "r", b"".join(_packed(keys))))
        (self.twin.stored if kind == "s" else self.twin.removed)(slot, keys)

    async def clear(self) -> None:
        slot = self.rng.randrange(WORKERS)
        await self._apply(slot, CacheEvent("c"))
        self.twin.cleared(slot)

    async def report(self) -> None:
        slot, view = self.rng.randrange(WORKERS), self.view()
        assert await self.real.report(self.lives[slot], view)
        self.desk.report({slot: view})

    async def first(self) -> None:
        if self.open:
            ticket = self.rng.choice(self.open)
            await self.real.release([ticket], [])
            self.desk.first_token(ticket)

    async def end(self) -> None:
        if self.open:
            ticket = self.open.pop(self.rng.randrange(len(self.open)))
            await self.real.release([], [ticket])
            self.desk.end(ticket)

    async def die(self) -> None:
        """Its tickets stay open: what is given back of them later is nobody's."""
        slot = self.rng.randrange(WORKERS)
        await self.real.retire(self.lives[slot])
        while await self.real.clean():
            pass
        self.desk.retire(slot)
        self.lives[slot] = Incarnation(str(slot), self.lives[slot].epoch + 1)
        self.numbers[slot] = 0
        view = self.view()
        await self.real.register(self.lives[slot], view)
        self.desk.begin(slot, view)

    def prompt(self) -> list[int]:
        family, length = self.rng.randrange(4), self.rng.choice([0, 1, 2, 3, 9, 20])
        return [family * 100 + number + 1 for number in range(length)]

    def view(self) -> WorkerView:
        """A worker of forty blocks; sometimes one that says it has more unused ones than that."""
        rng = self.rng
        return WorkerView(
            "",
            prefill_tokens_per_s=rng.choice([15_928.0, 333.3]),
            step_per_sequence_s=rng.choice([0.000_22, 0.01]),
            step_base_s=rng.choice([0.025, 0.1]),
            total_blocks=40,
            unused_blocks=rng.choice([0, 3, 20, rng.randint(0, 50)]),
            referenced_blocks=rng.randint(0, 40),
            waiting=rng.choice([0, 0, 3]),
            running=rng.randint(0, 5),
        )

    async def _apply(self, slot: int, event: CacheEvent) -> None:
        self.numbers[slot] += 1
        assert await self.real.apply(self.lives[slot], self.numbers[slot], [event]) == "ok"


def _packed(keys: list[int]) -> list[bytes]:
    return [key.to_bytes(8, "big") for key in keys]


@pytest.mark.parametrize("policy", ["affinity", "weighted_active", "least_load", "affinity_filter", "round_robin"])
@pytest.mark.parametrize("seed", range(3))
async def test_the_twin_shows_and_chooses_what_the_scripts_do(redis: Redis, policy: str, seed: int) -> None:
    both = Both(redis, policy, seed)
    await both.begin()
    for _ in range(300):
        await both.step()
        real, twin = await both.look()
        assert real == twin
    assert len(both.shown) > 10, "free memory of many kinds was compared"
    assert policy != "affinity" or both.reasons == {"cold", "home", "second_home", "stay"}


SHORT = Workload("short", "", grouped(Shape(groups=20, output_tokens=200), ((10, 10), (20, 10))), kill=(3.0, 7.0))


@pytest.mark.parametrize(
    ("arm", "variant"),
    [
        ("affinity", "exact"),
        ("affinity", "reported"),
        ("affinity", "late"),
        ("weighted", "reported"),
        ("random", "exact"),
    ],
)
def test_a_run_decided_on_redis_has_the_figures_of_the_same_run_decided_by_the_twin(
    arm: str, variant: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To the last digit, through a death and a return: sweeps on the twin are sweeps through the scripts."""
    monkeypatch.setitem(WORKLOADS, "short", SHORT)

    def desk(workers: int, policy: Policy, rng: random.Random) -> RedisDesk:
        return RedisDesk(redis_url, f"m-{uuid4().hex}", workers, policy, rng)

    twin = bench._fast("short", variant, arm, 0)
    redis = bench._fast("short", variant, arm, 0, desk)
    assert [figures(row) for row in redis] == [figures(row) for row in twin]


def figures(row: msgspec.Struct) -> Mapping[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(row).items() if key != "mode"}
