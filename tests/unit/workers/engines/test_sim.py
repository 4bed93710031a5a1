import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.unit.workers.engines.jobs import job
from tests.waiting import until
from topics.steering.blocks import Namespace, begin, extend
from workers.engine import Delta, End, EngineDied, Refused, Step
from workers.engines.sim import SimEngine
from workers.engines.sim_parts import SimParams

NAMESPACE = Namespace("m")
PARAMS = SimParams(blocks=64, block_tokens=4, step_base_s=0.01)


class Cache:
    def __init__(self) -> None:
        self.keys: set[object] = set()

    def stored(self, keys: Sequence[object], parent: object) -> None:
        self.keys.update(keys)

    def removed(self, keys: Sequence[object]) -> None:
        self.keys.difference_update(keys)

    def cleared(self) -> None:
        self.keys.clear()


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
async def engine(cache: Cache) -> AsyncIterator[SimEngine]:
    made = SimEngine(PARAMS, cache, NAMESPACE, speedup=20.0)
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


async def test_cache_events_carry_our_own_keys(engine: SimEngine, cache: Cache) -> None:
    await collect(engine, list(range(10)), max_tokens=1)
    assert cache.keys == set(extend(begin(NAMESPACE), list(range(10)), 4).keys)


async def test_many_runs_at_once_all_end(engine: SimEngine) -> None:
    answers = await asyncio.gather(*(collect(engine, [n] * 9, max_tokens=5) for n in range(40)))
    assert [len(made(steps)) for steps in answers] == [5] * 40
    assert engine.load().running == engine.load().waiting == 0


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
    with pytest.raises(Refused) as refused:
        await collect(engine, [1], **sampling)
    assert refused.value.param == param


async def test_a_closed_engine_leaves_no_task_behind(engine: SimEngine) -> None:
    before = len(asyncio.all_tasks())
    await engine.close()
    await engine.close()
    await until(lambda: len(asyncio.all_tasks()) < before, within_s=2.0)
