import asyncio
from contextlib import aclosing

import pytest

from schemas.jobs import GenerateJob, Head, Sampling
from tests.waiting import until
from workers.engine import Delta, End, EngineDied, Step
from workers.engines.stub import StubEngine

DEADLY = 666


def job(max_tokens: int = 3, n: int = 1, logprobs: int | None = None, prompt: list[int] | None = None) -> GenerateJob:
    head = Head("r", "stub", deadline_at=2e9, created_at=0.0, reply_to="g")
    return GenerateJob(head, prompt or [1, 2, 3], Sampling(max_tokens=max_tokens, n=n, logprobs=logprobs))


async def started(step_s: float = 0.001, **options: float) -> StubEngine:
    engine = StubEngine(slots=8, step_s=step_s, deadly_token_id=DEADLY, **options)  # type: ignore[arg-type]
    await engine.start(lambda _: None)
    return engine


async def collect(engine: StubEngine, one: GenerateJob) -> list[Step]:
    async with aclosing(engine.run(one)) as steps:
        return [step async for step in steps]


async def test_it_emits_max_tokens_and_ends_with_length() -> None:
    engine = await started()
    *deltas, end = await collect(engine, job(max_tokens=3))
    assert [step.text for step in deltas if isinstance(step, Delta)] == [" tok0", " tok1", " tok2"]
    assert [step.finish_reason for step in deltas if isinstance(step, Delta)] == [None, None, "length"]
    assert end == End(prompt_tokens=3, completion_tokens=3)
    await engine.close()


async def test_each_of_n_choices_gets_its_own_tokens() -> None:
    engine = await started()
    *deltas, end = await collect(engine, job(max_tokens=2, n=3))
    assert [step.index for step in deltas if isinstance(step, Delta)] == [0, 1, 2, 0, 1, 2]
    assert end == End(prompt_tokens=3, completion_tokens=6)
    await engine.close()


async def test_logprobs_come_when_asked_for() -> None:
    engine = await started()
    first, *_ = await collect(engine, job(logprobs=2))
    assert isinstance(first, Delta) and first.logprobs is not None
    assert first.logprobs[0].raw == b" tok0" and len(first.logprobs[0].top) == 2
    await engine.close()


async def test_a_thousand_slow_streams_share_one_task_and_leave_nothing_behind() -> None:
    engine = await started(step_s=3600.0, first_token_s=0.0)
    before = len(asyncio.all_tasks())
    streams = [engine.run(job(max_tokens=9)) for _ in range(1000)]
    firsts = [await anext(stream) for stream in streams]
    assert all(isinstance(first, Delta) for first in firsts)
    assert engine.load().running == 1000 and len(asyncio.all_tasks()) == before
    assert engine.load().tokens_per_s > 0
    for stream in streams:
        await stream.aclose()
    assert engine.load().running == 0
    await engine.close()


async def test_a_deadly_prompt_ends_every_open_run_and_restart_mends_it() -> None:
    engine = await started()
    waiting = asyncio.create_task(collect(engine, job(max_tokens=1_000_000)))
    await until(lambda: engine.load().running == 1)
    with pytest.raises(EngineDied):
        await collect(engine, job(prompt=[DEADLY]))
    with pytest.raises(EngineDied):
        await waiting
    with pytest.raises(EngineDied):
        await collect(engine, job())
    await engine.restart(lambda _: None)
    assert len(await collect(engine, job(max_tokens=1))) == 2
    await engine.close()


async def test_a_late_loop_does_not_slow_the_pace_down() -> None:
    engine = await started(step_s=0.01)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await collect(engine, job(max_tokens=20))
    assert loop.time() - began < 0.01 * 20 + 0.15
    await engine.close()


async def test_a_fault_of_its_own_steps_is_a_death_that_runs_hear_of(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await started()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(engine, "_advance", broken)
    async with asyncio.timeout(5):
        with pytest.raises(EngineDied):
            await collect(engine, job())
    await engine.close()
