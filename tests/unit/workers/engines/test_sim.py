import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from schemas.jobs import GenerateJob
from schemas.media import Embeds
from tests.unit.workers.engines.jobs import job
from tests.waiting import until
from topics.steering import namespaces
from topics.steering.blocks import Media, Namespace, begin, extend
from workers.engine import CacheBatch, Cleared, Delta, End, EngineDied, Step, Stored, Unrunnable
from workers.engines import sim
from workers.engines.sim import SimEngine
from workers.engines.sim_parts import SimParams

NAMESPACE = Namespace("m")
PARAMS = SimParams(blocks=64, block_tokens=4, step_base_s=0.01)


@pytest.fixture
async def engine() -> AsyncIterator[SimEngine]:
    made = SimEngine(PARAMS, NAMESPACE, speedup=20.0)
    await made.start(lambda line: None)
    yield made
    await made.close()


async def collect(engine: SimEngine, prompt: list[int], **sampling: object) -> list[Step]:
    return [step async for step in engine.run(job(prompt, **sampling))]


def made(steps: Sequence[Step]) -> list[int]:
    return [token for step in steps if isinstance(step, Delta) for token in step.token_ids]


async def test_a_run_gives_every_token_once_and_ends(engine: SimEngine) -> None:
    steps = await collect(engine, list(range(10)), max_tokens=30)
    assert len(made(steps)) == 30
    assert steps[-1] == End(10, 30, 0)
    assert [step.finish_reason for step in steps if isinstance(step, Delta)][-1] == "length"


async def test_a_repeated_prompt_is_served_from_the_cache_and_says_so(engine: SimEngine) -> None:
    await collect(engine, list(range(10)), max_tokens=2)
    steps = await collect(engine, list(range(10)), max_tokens=2)
    assert steps[-1] == End(10, 2, 8)


async def test_cache_events_carry_our_own_keys_and_a_death_is_a_clear(engine: SimEngine) -> None:
    events = engine.cache_events()
    await collect(engine, list(range(10)), max_tokens=1)
    keys = extend(begin(NAMESPACE), list(range(10)), 4).keys
    batch = await anext(events)
    assert [event for event in batch.events if isinstance(event, Stored)] == [Stored(keys, None, (), 0, keys=keys)]
    engine.die()
    assert await anext(events) == CacheBatch([Cleared()])
    await events.aclose()


async def test_a_picture_is_found_again_by_its_digest_and_apart_from_tokens_alone(engine: SimEngine) -> None:
    async def cached(one: GenerateJob) -> int:
        last = [step async for step in engine.run(one)][-1]
        assert isinstance(last, End)
        return last.cached_tokens

    plain = job(list(range(10)), max_tokens=1)
    cat, dog = (msgspec.structs.replace(plain, embeds=[Embeds(5, 2, f"artifacts/{of}", of)]) for of in ("cat", "dog"))
    assert [await cached(one) for one in (plain, cat, dog, cat)] == [0, 0, 4, 8]
    keys = extend(begin(namespaces.with_embeds(NAMESPACE)), list(range(10)), 4, [Media(5, 2, "cat")]).keys
    events = engine.cache_events()
    held = {key for event in (await anext(events)).events if isinstance(event, Stored) for key in event.keys}
    assert held > set(keys)
    await events.aclose()


async def test_changes_that_nobody_reads_are_dropped_and_the_reader_is_told(
    engine: SimEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim, "MAX_UNREAD", 3)
    for number in range(5):
        await collect(engine, [100 * number + one for one in range(9)], max_tokens=1)
    batch = await anext(engine.cache_events())
    assert batch.gap
    assert len(batch.events) <= 3


async def test_the_speed_of_the_modelled_worker_is_learned(engine: SimEngine) -> None:
    for number in range(5):
        await collect(engine, [100 * number + one for one in range(100)], max_tokens=20)
    assert engine.load().speed.step_base_s == pytest.approx(PARAMS.step_base_s, rel=0.1)


async def test_many_runs_at_once_all_end(engine: SimEngine) -> None:
    answers = await asyncio.gather(*(collect(engine, [n] * 9, max_tokens=5) for n in range(40)))
    assert [len(made(steps)) for steps in answers] == [5] * 40
    assert engine.load().running == engine.load().waiting == 0


async def test_neither_what_is_cached_nor_what_is_half_full_is_unused(engine: SimEngine) -> None:
    prompt = 10 * PARAMS.block_tokens + 1
    await collect(engine, [1] * prompt, max_tokens=2)
    assert engine.load().kv_unused * PARAMS.blocks == PARAMS.blocks - 10
    run = engine.run(job([2] * prompt, max_tokens=150))
    await anext(run)
    load = engine.load()
    assert load.kv_usage * PARAMS.blocks >= 11
    assert (load.kv_usage + load.kv_unused) * PARAMS.blocks == PARAMS.blocks - 10
    await run.aclose()


async def test_closing_a_run_frees_what_it_held(engine: SimEngine) -> None:
    run = engine.run(job([1] * 40, max_tokens=150))
    await anext(run)
    assert engine.load().kv_usage > 0
    await run.aclose()
    assert engine.load().kv_usage == 0


async def test_a_death_ends_open_runs_and_a_restart_serves_again_with_an_empty_cache(engine: SimEngine) -> None:
    await collect(engine, list(range(10)), max_tokens=1)
    run = engine.run(job([1] * 8, max_tokens=200))
    await anext(run)
    engine.die()
    with pytest.raises(EngineDied):
        async for _ in run:
            pass
    with pytest.raises(EngineDied):
        await collect(engine, [1], max_tokens=1)
    await engine.restart(lambda line: None)
    assert (await collect(engine, list(range(10)), max_tokens=1))[-1] == End(10, 1, 0)


@pytest.mark.parametrize(
    ("sampling", "param"), [({"n": 2}, "n"), ({"logprobs": 0}, "logprobs"), ({"max_tokens": 300}, "max_tokens")]
)
async def test_what_the_model_cannot_do_is_refused(engine: SimEngine, sampling: dict[str, int], param: str) -> None:
    with pytest.raises(Unrunnable) as refused:
        await collect(engine, [1], **sampling)
    assert refused.value.param == param


async def test_a_closed_engine_leaves_no_task_behind(engine: SimEngine) -> None:
    before = len(asyncio.all_tasks())
    await engine.close()
    await engine.close()
    await until(lambda: len(asyncio.all_tasks()) < before, within_s=2.0)
