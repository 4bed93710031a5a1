"""The prefix index on a real server."""

from collections.abc import AsyncIterator
from uuid import uuid4

import msgspec
import pytest
from redis.asyncio import Redis

from infra.ports import Incarnation
from infra.prefix_index import CacheEvent, PrefixIndex
from infra.redis_client import connect
from schemas.steering import Ask, WorkerView
from topics.steering.affinity import AffinityParams

pytestmark = pytest.mark.services

A, B, C = (Incarnation(name, 1) for name in "abc")
PARAMS = msgspec.structs.asdict(AffinityParams())
WORKER = WorkerView("", total_blocks=100)


def keys(count: int, family: int = 0) -> list[bytes]:
    return [(family * 100_000 + number + 1).to_bytes(8, "big") for number in range(count)]


def stored(block_keys: list[bytes]) -> CacheEvent:
    return CacheEvent("s", b"".join(block_keys))


def ask(blocks: int) -> Ask:
    return Ask(blocks * 64 + 10, blocks, 64, 100.0)


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
    for worker in (A, B, C):
        assert await made.register(worker, WORKER) == "registered"
    return made


async def matches(index: PrefixIndex, block_keys: list[bytes]) -> dict[str, int]:
    look = await index.look(block_keys, [A, B, C])
    return {view.worker: view.matched_blocks for view in look.views}


async def test_a_match_is_the_longest_contiguous_prefix_of_each_worker(index: PrefixIndex) -> None:
    prompt = keys(300)
    await index.apply(A, 1, [stored(prompt[:200])])
    await index.apply(B, 1, [stored(prompt[:3] + prompt[4:300])])  # a hole
    assert await matches(index, prompt) == {"a:1": 200, "b:1": 3, "c:1": 0}


async def test_removed_blocks_no_longer_match_and_their_rows_are_gone(
    index: PrefixIndex, redis: Redis, model: str
) -> None:
    prompt = keys(10)
    await index.apply(A, 1, [stored(prompt)])
    await index.apply(A, 2, [CacheEvent("r", b"".join(prompt[5:]))])
    assert await matches(index, prompt) == {"a:1": 5, "b:1": 0, "c:1": 0}
    assert len([key async for key in redis.scan_iter(f"tri:{{{model}}}:ix:b:*")]) == 5


async def test_a_clear_of_many_blocks_is_done_in_bounded_steps(index: PrefixIndex) -> None:
    prompt = keys(5_000)
    await index.apply(A, 1, [stored(prompt)])
    assert await index.apply(A, 2, [CacheEvent("c"), stored(prompt[:2])]) == "ok"
    assert (await matches(index, prompt))["a:1"] == 2


async def test_what_a_worker_registers_with_is_what_decisions_see_until_it_reports(index: PrefixIndex) -> None:
    """One that was thought dead, or whose index has lost everything, is busy when it registers."""
    busy = WorkerView("", total_blocks=100, unused_blocks=3, referenced_blocks=70, waiting=2, running=9)
    await index.register(Incarnation("busy", 1), busy)
    seen = (await index.look([], [Incarnation("busy", 1)])).views[0]
    assert seen == msgspec.structs.replace(busy, worker="busy:1")


async def test_what_a_worker_reports_is_what_decisions_see(index: PrefixIndex) -> None:
    report = WorkerView(
        "",
        prefill_tokens_per_s=1 / 3,
        step_per_sequence_s=1e-7,
        step_base_s=0.1,
        unused_blocks=42,
        referenced_blocks=7,
        waiting=2,
        running=9,
    )
    assert await index.report(A, report)
    seen = (await index.look([], [A])).views[0]
    assert seen == msgspec.structs.replace(report, worker="a:1", total_blocks=100)


async def test_blocks_in_use_without_a_key_are_not_taken_for_unused(index: PrefixIndex) -> None:
    """A worker of 100 blocks that runs 30 sequences: 40 blocks are full and have keys, 30 are partly filled."""
    await index.apply(A, 1, [stored(keys(40))])
    await index.report(A, msgspec.structs.replace(WORKER, unused_blocks=30, referenced_blocks=70, running=30))
    assert await unused(index) == 30


async def test_what_is_stored_after_a_report_is_no_longer_unused_and_what_is_evicted_is_not_yet(
    index: PrefixIndex,
) -> None:
    await index.apply(A, 1, [stored(keys(40))])
    await index.report(A, msgspec.structs.replace(WORKER, unused_blocks=30))
    await index.apply(A, 2, [stored(keys(10, family=1))])
    assert await unused(index) == 20
    await index.apply(A, 3, [CacheEvent("r", b"".join(keys(40)))])
    assert await unused(index) == 30
    await index.apply(A, 4, [stored(keys(90, family=2))])
    assert await unused(index) == 0


async def test_a_worker_is_never_said_to_have_more_unused_blocks_than_blocks(index: PrefixIndex) -> None:
    assert await unused(index) == 100
    await index.report(A, msgspec.structs.replace(WORKER, unused_blocks=101))
    assert await unused(index) == 100


async def test_a_worker_of_a_version_that_reports_no_unused_blocks_is_judged_by_its_keys(
    index: PrefixIndex, redis: Redis, model: str
) -> None:
    await index.apply(A, 1, [stored(keys(40))])
    await redis.hdel(f"tri:{{{model}}}:ix:w:0", "unused", "held_then")
    assert await unused(index) == 60


async def unused(index: PrefixIndex) -> int:
    return (await index.look([], [A])).views[0].unused_blocks


async def test_a_repeated_batch_is_known_and_a_missing_one_is_a_gap_until_a_resync(index: PrefixIndex) -> None:
    prompt = keys(4)
    assert await index.apply(A, 1, [stored(prompt[:2])]) == "ok"
    assert await index.apply(A, 1, [stored(prompt[:2])]) == "known"
    assert await index.apply(A, 3, [stored(prompt[2:])]) == "gap"
    assert (await matches(index, prompt))["a:1"] == 2
    assert await index.apply(A, 0, [CacheEvent("c"), stored(prompt)]) == "ok"
    assert await index.apply(A, 1, []) == "ok"
    assert (await matches(index, prompt))["a:1"] == 4


async def test_a_new_life_of_a_name_starts_with_nothing_and_the_old_one_is_over_at_once(index: PrefixIndex) -> None:
    prompt = keys(10)
    await index.apply(A, 1, [stored(prompt)])
    again = Incarnation("a", 2)
    await index.register(again, WORKER)
    look = await index.look(prompt, [A, again])
    assert [(view.worker, view.matched_blocks) for view in look.views] == [("a:2", 0)]
    assert await index.apply(A, 2, [stored(prompt)]) == "over"
    assert not await index.report(A, WORKER)
    assert await index.register(A, WORKER) == "over"
    assert await index.register(again, WORKER) == "registered"


async def test_rows_of_an_ended_life_are_cleared_without_a_scan_and_its_slot_is_used_again(
    index: PrefixIndex, redis: Redis, model: str
) -> None:
    prompt = keys(1_000)
    await index.apply(A, 1, [stored(prompt)])
    await index.place("t", ask(10), keys(10, family=2), [A], PARAMS, 60)
    assert await index.retire(A)
    for number in range(61):
        assert await index.register(Incarnation(f"n{number}", 1), WORKER) == "registered"
    assert await index.register(Incarnation("one-too-many", 1), WORKER) == "full"
    while await index.clean():
        pass
    assert [key async for key in redis.scan_iter(f"tri:{{{model}}}:ix:b:*")] == []
    assert await index.register(Incarnation("one-too-many", 1), WORKER) == "registered"


async def test_a_decision_reserves_and_a_release_gives_back_exactly_once(index: PrefixIndex) -> None:
    prompt = keys(20)
    placed = await index.place("t1", ask(20), prompt, [A, B, C], PARAMS, 60)
    assert placed and placed.reason == "cold"
    view = (await index.look(prompt, [Incarnation(placed.worker[:1], 1)])).views[0]
    assert (view.inflight, view.uncached_tokens, view.matched_blocks, view.family_inflight) == (1, 20 * 64 + 10, 20, 1)
    await index.release(["t1", "t1"], [])
    await index.release(["t1"], [])
    view = (await index.look(prompt, [Incarnation(placed.worker[:1], 1)])).views[0]
    assert (view.inflight, view.uncached_tokens) == (1, 0)
    assert await index.release([], ["t1", "t1"]) == 1
    assert await index.release(["t1"], ["t1"]) == 0
    view = (await index.look(prompt, [Incarnation(placed.worker[:1], 1)])).views[0]
    assert (view.inflight, view.uncached_tokens, view.matched_blocks, view.family_inflight) == (0, 0, 0, 0)


async def test_a_promise_that_an_event_has_confirmed_stays_after_the_end(index: PrefixIndex) -> None:
    prompt = keys(6)
    await index.place("t", ask(6), prompt, [A], PARAMS, 60)
    await index.apply(A, 1, [stored(prompt[:4])])
    await index.release(["t"], ["t"])
    assert (await matches(index, prompt))["a:1"] == 4


async def test_promises_are_counted(index: PrefixIndex) -> None:
    """The second one lacks the head, which the first one found there, and promises with it what the first one has."""
    prompt = keys(6)
    await index.apply(A, 1, [stored(prompt[:3])])
    await index.reserve("t1", ask(6), prompt, str(A), None, 60)
    await index.apply(A, 2, [CacheEvent("r", b"".join(prompt[:3]))])
    await index.reserve("t2", ask(6), prompt, str(A), None, 60)
    await index.release([], ["t1"])
    assert (await matches(index, prompt))["a:1"] == 6
    await index.release([], ["t2"])
    assert (await matches(index, prompt))["a:1"] == 0


async def test_a_repeated_decision_returns_the_reservation_it_has(index: PrefixIndex) -> None:
    first = await index.place("t", ask(5), keys(5), [A, B, C], PARAMS, 60)
    again = await index.place("t", ask(5), keys(5), [A, B, C], PARAMS, 60)
    assert first and again and (again.worker, again.reason) == (first.worker, "again")
    assert sum(view.inflight for view in (await index.look(keys(5), [A, B, C])).views) == 1


async def test_a_reservation_that_nobody_gives_back_expires(index: PrefixIndex) -> None:
    await index.place("t", ask(5), keys(5), [A], PARAMS, 0)
    view = (await index.look(keys(5), [A])).views[0]
    assert (view.inflight, view.uncached_tokens, view.matched_blocks) == (0, 0, 0)


async def test_a_choice_made_outside_is_refused_when_another_was_reserved_meanwhile(index: PrefixIndex) -> None:
    prompt = keys(5)
    look = await index.look(prompt, [A, B])
    await index.place("other", ask(5), prompt, [A, B], PARAMS, 60)
    assert await index.reserve("t", ask(5), prompt, look.views[1].worker, look.version, 60) == "look_again"
    look = await index.look(prompt, [A, B])
    assert await index.reserve("t", ask(5), prompt, look.views[1].worker, look.version, 60) == "reserved"
    await index.retire(B)
    assert await index.reserve("u", ask(5), prompt, look.views[1].worker, None, 60) == "over"


async def test_a_burst_of_identical_prompts_spreads_before_any_event_comes(index: PrefixIndex) -> None:
    prompt, placed = keys(4), []
    for number in range(200):
        one = await index.place(f"t{number}", ask(4), prompt, [A, B, C], PARAMS, 60)
        assert one
        placed.append(one.worker)
    assert max(placed.count(str(worker)) for worker in (A, B, C)) <= 120


async def test_a_worker_whose_feed_is_silent_is_judged_by_what_was_decided_for_it(redis: Redis, model: str) -> None:
    index, prompt = PrefixIndex(redis, model, lag_s=-1.0), keys(6)
    await index.register(A, WORKER)
    await index.place("t", ask(6), prompt, [A], PARAMS, 60)
    await index.release(["t"], ["t"])
    assert (await index.look(prompt, [A])).views[0].matched_blocks == 6
