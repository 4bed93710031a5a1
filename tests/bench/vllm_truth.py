"""`python -m tests.bench.vllm_truth --json FILE`: what vLLM's worker tells steering, beside what can be measured.

Speed: the engine runs a mixed load (ramps, drains, prompts with cached beginnings), from whose steps the speed is
learned. In between so many sequences are held at once, and a client times their tokens; prompts are timed alone. What
is learned must tell these times. Once as it is, once with the engine's processes stopped for a share of the time.

Memory: another engine inside one process, whose block pool can be counted after every step, beside what is derived
from events and gauges.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec

from infra.clock import SystemClock
from schemas.jobs import GenerateJob, Head, Sampling
from tests import models
from tests.bench import published
from tests.bench.throttle import throttled
from topics.steering.speed import Speed
from workers.engine import Delta
from workers.engines.vllm import VllmEngine
from workers.engines.vllm_events import EventStream
from workers.engines.vllm_load import LoadBoard
from workers.engines.vllm_settings import engine_args, prior_speed

AT_ONCE = (1, 2, 4, 8)
HELD_TOKENS = 15
ROUNDS = 5
PROMPTS = (128, 384, 768)
VOCABULARY = 40_000


class Held(msgspec.Struct, frozen=True):
    """So many sequences at once."""

    sequences: int
    measured_s: float  # mean time from token to token at the client
    learned_s: float


class Prompt(msgspec.Struct, frozen=True):
    """A prompt alone, nothing of it cached."""

    tokens: int
    measured_s: float  # to its first token at the client
    learned_s: float


class SpeedRun(msgspec.Struct, frozen=True):
    share: float  # of the time in which the engine's processes may run
    learned: Speed
    held: list[Held]
    prompts: list[Prompt]


class Blocks(msgspec.Struct, frozen=True):
    """After one step of the engine."""

    running: int
    unused: int  # counted in its pool
    derived: int


class Load:
    """Jobs for one engine."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._rng = random.Random(1)
        self._number = 0
        self._shared = self.tokens(256)

    def tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(100, VOCABULARY) for _ in range(count)]

    async def run(self, prompt: Sequence[int], tokens: int) -> list[float]:
        """When each of its tokens came."""
        self._number += 1
        head = Head(f"r{self._number}", models.MODEL, deadline_at=2e9, created_at=0.0, reply_to="")
        job = GenerateJob(head, list(prompt), Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True))
        at = []
        async with aclosing(self._engine.run(job)) as steps:
            async for step in steps:
                if isinstance(step, Delta):
                    at += [time.perf_counter()] * len(step.token_ids)
        return at

    async def mixed(self) -> None:
        """A ramp and a drain: requests of many lengths, some at once, some apart; two of three begin alike."""
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                head = self._shared if number % 3 else []
                prompt = [*head, *self.tokens(self._rng.randint(16, 400))]
                group.create_task(self.run(prompt, self._rng.randint(5, 60)))
                await asyncio.sleep(self._rng.choice([0.0, 0.0, 0.5]))

    async def held(self, sequences: int) -> list[float]:
        """Times from token to token while so many sequences decode."""
        runs = await asyncio.gather(*(self.run(self.tokens(16), HELD_TOKENS) for _ in range(sequences)))
        first, last = max(at[0] for at in runs), min(at[-1] for at in runs)
        return [b - a for at in runs for a, b in pairwise(at) if first <= a and b <= last]

    async def prompt(self, tokens: int) -> float:
        """Time to the first token of a prompt alone."""
        began = time.perf_counter()
        return (await self.run(self.tokens(tokens), 1))[0] - began


async def speeds(share: float) -> SpeedRun:
    """Learning and measuring take turns, so that neighbours on the machine disturb both alike."""
    engine = VllmEngine(models.manifest(), models.pulled())
    gaps: dict[int, list[float]] = {count: [] for count in AT_ONCE}
    firsts: dict[int, list[float]] = {count: [] for count in PROMPTS}
    async with _started(engine), _reading(engine):
        with throttled(models.engine_processes(), share):
            load = Load(engine)
            for _ in range(ROUNDS):
                await load.mixed()
                for count, seen in gaps.items():
                    seen += await load.held(count)
                for count, seen in firsts.items():
                    seen.append(await load.prompt(count))
            speed = engine.load().speed
    return SpeedRun(share, speed, _held(gaps, speed), _prompts(firsts, speed))


def _held(gaps: Mapping[int, Sequence[float]], speed: Speed) -> list[Held]:
    return [Held(n, _mean(seen), speed.step_base_s + n * speed.step_per_sequence_s) for n, seen in gaps.items()]


def _prompts(firsts: Mapping[int, Sequence[float]], speed: Speed) -> list[Prompt]:
    budget = engine_args(models.manifest(), Path("."), gpu=False)["max_num_batched_tokens"]
    step_s = speed.step_base_s + speed.step_per_sequence_s
    return [
        Prompt(tokens, _mean(seen), -(-tokens // budget) * step_s + tokens / speed.prefill_tokens_per_s)
        for tokens, seen in firsts.items()
    ]


@asynccontextmanager
async def _started(engine: VllmEngine) -> AsyncIterator[None]:
    await engine.start(lambda line: None)
    try:
        yield
    finally:
        await engine.close()


@asynccontextmanager
async def _reading(engine: VllmEngine) -> AsyncIterator[None]:
    """Somebody listens to its cache events, as in a worker."""

    async def listen() -> None:
        async for _ in engine.cache_events():
            continue

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def memory() -> list[Blocks]:
    """An engine in this process, to be called in one of its own: vLLM is set up for it before it is imported."""
    from infra import settings

    settings.set_library_environment({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "WARNING"})
    from vllm import EngineArgs, LLMEngine, SamplingParams
    from vllm.config import KVEventsConfig

    small = {"kv_cache_memory_bytes": 16 << 20, "max_model_len": 256}  # so that it fills, and evicts
    arguments = engine_args(models.manifest(), models.pulled(), gpu=False) | small
    events = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    engine = LLMEngine.from_engine_args(EngineArgs(**arguments, kv_events_config=events))
    scheduler = engine.engine_core.engine_core.scheduler
    heard = _Heard()
    scheduler.kv_event_publisher = heard
    rng, pool, seen = random.Random(2), scheduler.kv_cache_manager.block_pool, []
    shared = [rng.randrange(100, VOCABULARY) for _ in range(100)]
    for number in range(30):
        head = shared if number % 2 else []
        prompt = {"prompt_token_ids": [*head, *(rng.randrange(100, VOCABULARY) for _ in range(rng.randint(5, 100)))]}
        params = SamplingParams(max_tokens=rng.randint(2, 20), temperature=0.0, ignore_eos=True)
        engine.add_request(str(number), prompt, params)
        for _ in range(rng.randint(1, 6)):
            engine.step()
            board = LoadBoard(SystemClock(), prior_speed(gpu=False))
            stats = scheduler.make_stats()
            board.record(stats, None)
            total = pool.num_gpu_blocks
            unused = sum(not block.ref_cnt and block.block_hash is None and not block.is_null for block in pool.blocks)
            share = board.read(stats.num_running_reqs, total, heard.stream.held_blocks).kv_unused
            seen.append(Blocks(stats.num_running_reqs, unused, round(share * total)))
    return seen


class _Heard:
    """Stands in for vLLM's publisher; what is published is counted as a worker counts it."""

    def __init__(self) -> None:
        self.stream = EventStream(lambda digest: None)
        self._encoder = msgspec.msgpack.Encoder()
        self._number = 0

    def publish(self, batch: object) -> None:
        self.stream._take(self._number, self._encoder.encode(batch))
        self._number += 1

    def shutdown(self) -> None:
        self.stream.close()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.vllm_truth", description=__doc__)
    made.add_argument("--json", type=Path, help="write the figures here")
    made.add_argument("--shares", default="1,0.4", help="of the time in which the engine may run, comma-separated")
    return made


def main() -> None:
    given = parser().parse_args()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        blocks = pool.apply(memory)
    print(json.dumps(_summary(blocks)), flush=True)
    runs = []
    for share in given.shares.split(","):
        runs.append(asyncio.run(speeds(float(share))))
        print(json.dumps(msgspec.to_builtins(runs[-1]), indent=1), flush=True)
    if given.json:
        outcome = {"speed": msgspec.to_builtins(runs), "memory": _summary(blocks)}
        published.write(given.json, "vllm", outcome)


def _summary(blocks: Sequence[Blocks]) -> dict[str, int]:
    """Over all steps; what is derived may be too low by a block for each running sequence, never too high."""
    return {
        "steps": len(blocks),
        "most_unused": max(one.unused for one in blocks),
        "steps_with_unused": sum(one.unused > 0 for one in blocks),
        "most_running": max(one.running for one in blocks),
        "derived_too_high_by": max(max(one.derived - one.unused for one in blocks), 0),
        "derived_too_low_by": max(one.unused - one.derived for one in blocks),
        "exact_steps": sum(one.unused == one.derived for one in blocks),
    }


if __name__ == "__main__":
    main()
