"""The real engine with the real model. One engine for the whole file: starting one takes half a minute."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from infra import model_files
from schemas.jobs import GenerateJob, Head, JsonObject, JsonSchema, Sampling
from schemas.manifest import Manifest
from tests import models
from tests.waiting import until
from workers.engine import Delta, End, EngineDied, Step, Unrunnable
from workers.engines.vllm import VllmEngine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
    # vLLM and torch warn about themselves while they start; that is not ours to mend.
    pytest.mark.filterwarnings("default"),
]

LONG = 1500
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

MakeJob = Callable[..., GenerateJob]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(model_dir: Path) -> AsyncIterator[VllmEngine]:
    phases: list[str] = []
    engine = VllmEngine(models.manifest(), model_dir / models.MODEL)
    await engine.start(phases.append)
    assert len(phases) == 3
    yield engine
    await engine.close()
    await engine.close()  # harmless when repeated
    assert not models.engine_processes()


@pytest.fixture(scope="session")
def job(model_dir: Path) -> MakeJob:
    """Makes a job that asks the model one thing in a chat."""
    manifest: Manifest = models.manifest()
    files = model_files.read(model_dir / models.MODEL)
    tokenizer = Tokenizer.from_file(str(files.tokenizer_json))

    def make(question: str, request_id: str = "r", **sampling: Any) -> GenerateJob:
        system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        text = (
            f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        )
        head = Head(request_id, manifest.id, deadline_at=2e9, created_at=0.0, reply_to="")
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return GenerateJob(head, ids, Sampling(**{"max_tokens": 24, "temperature": 0.0, **sampling}))

    return make


async def collect(engine: VllmEngine, one: GenerateJob) -> list[Step]:
    async with aclosing(engine.run(one)) as steps:
        return [step async for step in steps]


def deltas(steps: list[Step], index: int = 0) -> list[Delta]:
    return [step for step in steps if isinstance(step, Delta) and step.index == index]


def text(steps: list[Step], index: int = 0) -> str:
    return "".join(delta.text for delta in deltas(steps, index))


def end(steps: list[Step]) -> End:
    assert isinstance(steps[-1], End)
    return steps[-1]


async def test_a_greedy_answer_is_right_streams_and_is_counted(engine: VllmEngine, job: MakeJob) -> None:
    one = job("What is the capital of France?")
    steps = await collect(engine, one)
    assert text(steps) == "The capital of France is Paris."
    assert deltas(steps)[-1].finish_reason == "stop" and len(deltas(steps)) > 4
    ids = [token_id for delta in deltas(steps) for token_id in delta.token_ids]
    assert end(steps).prompt_tokens == len(one.prompt_ids) and end(steps).completion_tokens == len(ids)


async def test_a_prompt_seen_before_comes_from_the_prefix_cache(engine: VllmEngine, job: MakeJob) -> None:
    one = job("Name three rivers that flow through Germany, please.", max_tokens=2)
    first, second = await collect(engine, one), await collect(engine, one)
    block = models.manifest().engine.cpu_block_tokens
    assert end(second).cached_tokens == (len(one.prompt_ids) - 1) // block * block > end(first).cached_tokens - 1
    assert text(first) == text(second)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_n_choices_come_under_their_index_each_with_an_end(
    engine: VllmEngine, job: MakeJob, temperature: float
) -> None:
    steps = await collect(engine, job("Tell me a story.", n=3, temperature=temperature, seed=1, max_tokens=6))
    texts = {text(steps, index) for index in range(3)}
    assert len(texts) == (1 if temperature == 0 else 3)
    assert [deltas(steps, index)[-1].finish_reason for index in range(3)] == ["length"] * 3
    assert end(steps).completion_tokens == 18


async def test_a_seed_repeats_an_answer_and_another_changes_it(engine: VllmEngine, job: MakeJob) -> None:
    answers = [
        text(await collect(engine, job("Tell me a story.", temperature=1.0, seed=seed, max_tokens=12)))
        for seed in (1, 1, 2)
    ]
    assert answers[0] == answers[1] != answers[2]


async def test_log_probabilities_cover_the_text_and_rank_the_alternatives(engine: VllmEngine, job: MakeJob) -> None:
    steps = await collect(engine, job("What is the capital of France?", logprobs=3))
    found = [one for delta in deltas(steps) for one in delta.logprobs or []]
    assert b"".join(one.raw for one in found).decode() == text(steps)
    for one in found:
        assert len(one.top) == 3 and one.top[0].raw == one.raw  # greedy: the chosen token is the likeliest
        assert 0.0 >= one.top[0].logprob >= one.top[1].logprob >= one.top[2].logprob


async def test_a_stop_string_ends_the_text_before_it(engine: VllmEngine, job: MakeJob) -> None:
    steps = await collect(engine, job("What is the capital of France?", stop=["Paris"]))
    assert text(steps) == "The capital of France is " and deltas(steps)[-1].finish_reason == "stop"


async def test_max_tokens_min_tokens_and_ignore_eos(engine: VllmEngine, job: MakeJob) -> None:
    question = "What is the capital of France?"
    short = await collect(engine, job(question, max_tokens=3))
    assert deltas(short)[-1].finish_reason == "length" and end(short).completion_tokens == 3
    for longer in ({"min_tokens": 15}, {"ignore_eos": True}):
        assert end(await collect(engine, job(question, **longer))).completion_tokens >= 15


async def test_logit_bias_bans_a_token(engine: VllmEngine, job: MakeJob) -> None:
    paris = 7042
    steps = await collect(engine, job("What is the capital of France?", logit_bias={paris: -100.0}))
    assert "Paris" not in text(steps)


async def test_a_json_schema_is_followed(engine: VllmEngine, job: MakeJob) -> None:
    question = "Give me a JSON object for a person with name and age."
    schema = JsonSchema(json.dumps(PERSON))
    steps = await collect(engine, job(question, constraint=schema, max_tokens=60, logprobs=5))
    person = json.loads(text(steps))
    assert set(person) == {"name", "age"} and isinstance(person["age"], int)
    free = json.loads(text(await collect(engine, job(question, constraint=JsonObject(), max_tokens=80))))
    assert isinstance(free, dict)


@pytest.mark.parametrize("wanted", ["안녕하세요, 가나다라! 😀👩‍👩‍👧🇰🇷", "naïve 漢字 ✨"])
async def test_no_chunk_ever_splits_a_character(engine: VllmEngine, job: MakeJob, wanted: str) -> None:
    exact = JsonSchema(json.dumps({"const": wanted}))
    steps = await collect(engine, job("Say it.", constraint=exact, max_tokens=200, logprobs=0))
    assert json.loads(text(steps)) == wanted
    assert not [delta.text for delta in deltas(steps) if "\ufffd" in delta.text]
    assert "" in [delta.text for delta in deltas(steps)], "some token was only part of a character"
    raw = b"".join(one.raw for delta in deltas(steps) for one in delta.logprobs or [])
    assert raw.decode() == text(steps)


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        ({"max_tokens": 3000}, "max_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"seed": 2**70}, "seed"),
        ({"logit_bias": {49_152: 1.0}}, "logit_bias"),
        ({"constraint": JsonSchema('{"type": "nonsense"}')}, "response_format"),
        ({"constraint": JsonSchema('{"type": "string", "pattern": "(("}')}, "response_format"),
        (
            {"constraint": JsonSchema('{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}')},
            "response_format",
        ),
        ({"constraint": JsonSchema('{"$ref": "#"}')}, "response_format"),  # found out only inside the engine
        ({"constraint": JsonSchema('{"type": "string", "minLength": 5, "maxLength": 2}')}, "response_format"),
    ],
)
async def test_a_job_that_could_hurt_the_engine_is_refused_and_the_engine_lives(
    engine: VllmEngine, job: MakeJob, sampling: dict[str, Any], param: str
) -> None:
    with pytest.raises(Unrunnable) as refused:
        await collect(engine, job("Hello", **sampling))
    assert refused.value.param == param
    assert end(await collect(engine, job("Hello", max_tokens=1))).completion_tokens == 1


async def test_closing_runs_aborts_them_inside_the_engine(engine: VllmEngine, job: MakeJob) -> None:
    crowd = [
        engine.run(job("Tell me a long story.", f"r{i}", max_tokens=LONG, ignore_eos=True)) for i in range(engine.slots)
    ]
    await asyncio.gather(*(anext(run) for run in crowd))
    assert engine.load().running == engine.slots and engine.load().kv_usage > 0
    for run in crowd:
        await run.aclose()
    assert engine.load().running == 0
    async with asyncio.timeout(30):  # they would have kept every place for minutes
        await collect(engine, job("Hello", max_tokens=2))


async def test_a_lower_priority_number_goes_first(engine: VllmEngine, job: MakeJob) -> None:
    order: list[str] = []

    async def run(name: str, priority: int) -> None:
        one = job(f"{name} question", request_id=name, max_tokens=6, ignore_eos=True)
        head = Head(name, models.MODEL, 2e9, 0.0, "", priority=priority)
        await collect(engine, GenerateJob(head, one.prompt_ids, one.sampling))
        order.append(name)

    crowd = [run(f"low{i}", 5) for i in range(engine.slots * 2)]
    await asyncio.gather(*crowd, run("urgent", 0))
    assert order.index("urgent") < len(order) // 2


@pytest.mark.parametrize("victim", ["VLLM::Worker", "VLLM::EngineCore"])
async def test_a_killed_engine_ends_every_run_and_is_replaced_in_place(
    engine: VllmEngine, job: MakeJob, victim: str
) -> None:
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.append, "SIGTERM")
    old = models.engine_processes()
    runs = [
        asyncio.create_task(collect(engine, job("A story", f"r{i}", max_tokens=LONG, ignore_eos=True)))
        for i in range(4)
    ]
    await until(lambda: engine.load().running == 4, within_s=60)
    os.kill(next(process.pid for process in old if victim.startswith(process.name()[:15])), signal.SIGKILL)
    async with asyncio.timeout(20):
        ends = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(one) for one in ends] == [EngineDied] * 4
    with pytest.raises(EngineDied):
        await collect(engine, job("Hello"))
    assert engine.load().running == 0

    late = asyncio.create_task(_longest_pause_s())
    await engine.restart(lambda _: None)
    late.cancel()
    assert await late < 2.0, "leases are renewed on this loop meanwhile"
    assert not [process for process in old if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert text(await collect(engine, job("What is the capital of France?"))) == "The capital of France is Paris."
    loop.remove_signal_handler(signal.SIGTERM)
    assert told == []


async def _longest_pause_s() -> float:
    """How long the event loop was blocked at most, until cancelled."""
    loop, longest = asyncio.get_running_loop(), 0.0
    try:
        while True:
            before = loop.time()
            await asyncio.sleep(0.05)
            longest = max(longest, loop.time() - before - 0.05)
    except asyncio.CancelledError:
        return longest
