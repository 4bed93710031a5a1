"""Policies on the real index, several gateways at once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from infra.ports import Incarnation
from infra.prefix_index import CacheEvent, PrefixIndex, Reserved
from infra.redis_client import connect
from schemas.steering import Ask, WorkerView
from topics.steering.policy import NAMES, UnknownPolicy, parse_policy
from topics.steering.steerer import Steerer

pytestmark = pytest.mark.services

WORKERS = [Incarnation(f"w{number}", 1) for number in range(4)]
PROMPT = [(number + 1).to_bytes(8, "big") for number in range(100)]
ASK = Ask(6_450, 100, 64, 500.0, session="s")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def model() -> str:
    return f"m-{uuid4().hex}"


@pytest.fixture
async def index(redis: Redis, model: str) -> PrefixIndex:
    made = PrefixIndex(redis, model)
    for worker in WORKERS:
        await made.register(worker, WorkerView("", total_blocks=4_802))
    return made


@pytest.mark.parametrize("policy", [name for name in NAMES if not parse_policy(name).approximate])
async def test_every_policy_places_and_reserves_on_one_of_the_candidates(index: PrefixIndex, policy: str) -> None:
    steerer = Steerer(index, parse_policy(policy), random.Random(1))
    choice = await steerer.place("t", ASK, PROMPT, WORKERS[:2], ttl_s=60)
    assert choice and choice.worker in {"w0:1", "w1:1"}
    views = (await index.look([], WORKERS)).views
    assert {view.worker: view.inflight for view in views if view.inflight} == {choice.worker: 1}


async def test_a_pool_that_the_index_does_not_know_is_nobody(index: PrefixIndex) -> None:
    stranger = [Incarnation("stranger", 1)]
    for policy in ("affinity", "least_load"):
        steerer = Steerer(index, parse_policy(policy), random.Random(1))
        assert await steerer.place("t", ASK, PROMPT, stranger, ttl_s=60) is None
        assert await steerer.place("t", ASK, PROMPT, [], ttl_s=60) is None


async def test_a_warm_prefix_is_found_and_its_choice_is_explained(index: PrefixIndex) -> None:
    await index.apply(WORKERS[2], 1, [CacheEvent("s", b"".join(PROMPT))])
    choice = await Steerer(index, parse_policy("affinity"), random.Random(1)).place("t", ASK, PROMPT, WORKERS, ttl_s=60)
    assert choice
    assert (choice.worker, choice.reason, choice.matched_blocks) == ("w2:1", "home", 100)
    assert {other.worker for other in choice.alternatives} == {"w0:1", "w1:1", "w3:1"}
    assert min(other.cost for other in choice.alternatives) > choice.cost


async def test_two_gateways_deciding_at_once_on_a_burst_of_identical_prompts_do_not_pile_up(
    index: PrefixIndex, redis_url: str, model: str
) -> None:
    """200 at once, cold: one home would have them all wait for one worker's decode; each earns its share."""
    clients = [connect(redis_url) for _ in range(2)]
    gateways = [
        Steerer(PrefixIndex(client, model), parse_policy("affinity"), random.Random(seed))
        for seed, client in enumerate(clients)
    ]
    choices = await asyncio.gather(
        *(gateways[number % 2].place(f"t{number}", ASK, PROMPT, WORKERS, ttl_s=60) for number in range(200))
    )
    for client in clients:
        await client.aclose()
    counts = Counter(choice.worker for choice in choices if choice)
    assert sum(counts.values()) == 200
    assert max(counts.values()) <= 70
    assert len(counts) == 4


@pytest.mark.parametrize("policy", ["least_load", "weighted:active=1"])
async def test_decisions_outside_redis_see_each_other(index: PrefixIndex, policy: str) -> None:
    steerers = [Steerer(index, parse_policy(policy), random.Random(seed)) for seed in range(2)]
    await asyncio.gather(
        *(steerers[number % 2].place(f"t{number}", ASK, PROMPT, WORKERS, ttl_s=60) for number in range(40))
    )
    inflight = [view.inflight for view in (await index.look([], WORKERS)).views]
    assert sum(inflight) == 40
    assert max(inflight) - min(inflight) <= 1


class _Overtaken(PrefixIndex):
    """Another gateway always decides between our look and our reservation, for the very worker we have chosen."""

    others = 0

    async def reserve(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], worker: str, version: int | None, ttl_s: float
    ) -> Reserved:
        self.others += 1
        assert await super().reserve(f"other-{self.others}", ask, block_keys, worker, None, ttl_s) == "reserved"
        return await super().reserve(ticket, ask, block_keys, worker, version, ttl_s)


async def test_a_gateway_that_is_always_overtaken_does_not_insist_on_what_it_saw(
    index: PrefixIndex, redis: Redis, model: str
) -> None:
    """Its last look named a worker that is not the least loaded any more."""
    overtaken = _Overtaken(redis, model)
    choice = await Steerer(overtaken, parse_policy("weighted:active=1"), random.Random(1)).place(
        "t", ASK, PROMPT, WORKERS, ttl_s=60
    )
    assert choice and choice.reason == "contended"
    inflight = [view.inflight for view in (await index.look([], WORKERS)).views]
    assert sum(inflight) == overtaken.others + 1
    assert max(inflight) - min(inflight) <= 1


@pytest.mark.parametrize("policy", ["round_robin", "random", "session"])
async def test_a_choice_that_does_not_depend_on_load_stands_whatever_others_decide(
    redis: Redis, model: str, index: PrefixIndex, policy: str
) -> None:
    overtaken = _Overtaken(redis, model)
    choice = await Steerer(overtaken, parse_policy(policy), random.Random(1)).place("t", ASK, PROMPT, WORKERS, ttl_s=60)
    assert choice and choice.reason != "contended"
    assert overtaken.others == 1
    (mine,) = (view for view in (await index.look(PROMPT, WORKERS)).views if view.worker == choice.worker)
    assert (mine.inflight, mine.uncached_tokens) == (2, ASK.prompt_tokens + 50)  # of ours only what the other lacks


async def test_a_policy_that_needs_another_record_is_refused_and_not_taken_for_its_exact_twin(
    index: PrefixIndex,
) -> None:
    with pytest.raises(UnknownPolicy, match="weighted_approximate"):
        Steerer(index, parse_policy("weighted_approximate"), random.Random())
