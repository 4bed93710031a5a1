"""`python -m tests.bench.gateway --json FILE`: what Triptych adds to an engine, and what it costs.

The whole path (HTTP, render and tokenise a 500-token prompt, Kafka, a stub engine of 16 tokens at 2 ms a step, result
path, SSE) at concurrency 1, 16 and 64, against the same stub called directly. No model runs: figures are of the
pipeline alone. Processor time is read from the processes themselves.
"""

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import aclosing
from functools import partial
from pathlib import Path

import msgspec
import psutil

from schemas.jobs import GenerateJob, Head, Sampling
from tests.bench import published
from tests.bench.load import Run, Sample, closed_loop, percentile
from tests.stack import Stack, running
from workers.engine import Delta
from workers.engines.stub import StubEngine

MODEL, TOKENS, STEP_S = "smollm2-135m", 16, 0.002
CONCURRENCIES = (1, 16, 64)
SENTENCE = "The quick brown fox jumps over the lazy dog near the river bank. "  # 14 tokens
QUESTION = 5  # sentences


class Prompt(msgspec.Struct, frozen=True):
    """A system prompt of so many sentences and a question, which is always new; `fresh`: the system prompt is, too.

    The gateway remembers the token ids of messages it has seen, so what is new is what costs.
    """

    name: str
    system: int
    fresh: bool = False


SHARED = Prompt("shared system prompt, new question", 28)  # 500 tokens
FRESH = Prompt("all new", 28, fresh=True)
LONG = Prompt("long shared system prompt, new question", 130)  # 1,900 tokens, nearly all that the model reads


def body(stream: bool, prompt: Prompt, number: int) -> dict[str, object]:
    mark = f"{number} {time.perf_counter_ns()} "
    messages = [
        {"role": "system", "content": (mark if prompt.fresh else "") + SENTENCE * prompt.system},
        {"role": "user", "content": mark + SENTENCE * QUESTION},
    ]
    return {"model": MODEL, "messages": messages, "max_tokens": TOKENS, "ignore_eos": True, "stream": stream}


async def direct(concurrency: int, seconds: float) -> list[Sample]:
    """The stub engine called in this process, without anything between."""
    engine = StubEngine(slots=1024, step_s=STEP_S)
    await engine.start(lambda _: None)
    samples: list[Sample] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < until:
            head = Head("r", MODEL, deadline_at=4e9, created_at=0, reply_to="")
            job = GenerateJob(head, list(range(500)), Sampling(max_tokens=TOKENS, ignore_eos=True))
            start, first_s = time.perf_counter(), 0.0
            async with aclosing(engine.run(job)) as steps:
                async for step in steps:
                    if isinstance(step, Delta) and not first_s:
                        first_s = time.perf_counter() - start
            samples.append(Sample(first_s, time.perf_counter() - start))

    await asyncio.gather(*(client() for _ in range(concurrency)))
    await engine.close()
    return samples


class Meter:
    """Processor seconds of a process and its children between two moments."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._start = self._spent_s()

    def _spent_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def spent_s(self) -> float:
        return self._spent_s() - self._start


def added(run: Run, base: list[Sample], stream: bool) -> dict[str, float]:
    """Milliseconds the pipeline adds to the stub, to the end and, of a stream, to the first chunk."""
    rows: dict[str, float] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        first = percentile([one.first_s for one in run.samples], share) - percentile([b.first_s for b in base], share)
        end = percentile([one.end_s for one in run.samples], share) - percentile([b.end_s for b in base], share)
        if stream:
            rows[f"first_{name}_ms"] = round(first * 1e3, 2)
        rows[f"end_{name}_ms"] = round(end * 1e3, 2)
    return rows


async def measure(
    stack: Stack, stream: bool, concurrency: int, seconds: float, prompt: Prompt = SHARED
) -> dict[str, object]:
    port = int(stack.url.rsplit(":", 1)[1])
    await closed_loop(port, partial(body, stream, prompt), concurrency, 2.0)  # warm-up
    gateway, worker = Meter(stack.pid("gateway")), Meter(stack.pid("llm-0"))
    run = await closed_loop(port, partial(body, stream, prompt), concurrency, seconds)
    gateway_s, worker_s = gateway.spent_s(), worker.spent_s()
    answers = max(1, len(run.samples))
    base = await direct(concurrency, min(seconds, 3.0))
    return {
        "stream": stream,
        "prompt": prompt.name,
        "concurrency": concurrency,
        "answers_per_s": round(run.per_s, 1),
        "errors": len(run.errors),
        "first_error": run.errors[:1],
        "gateway_cpu_ms": round(gateway_s / answers * 1e3, 3),
        "worker_cpu_ms": round(worker_s / answers * 1e3, 3),
        "added": added(run, base, stream),
    }


async def bench(stack: Stack, seconds: float) -> dict[str, object]:
    rows = [
        await measure(stack, stream, concurrency, seconds) for stream in (False, True) for concurrency in CONCURRENCIES
    ]
    fresh, long = [await measure(stack, False, CONCURRENCIES[-1], seconds, prompt) for prompt in (FRESH, LONG)]
    for row in (*rows, fresh, long):
        print(json.dumps(row), flush=True)
    whole, streamed = rows[: len(CONCURRENCIES)], rows[len(CONCURRENCIES) :]
    return {
        "engine": "stub (no model runs)",
        "broker": stack.describe().get("broker"),
        "added_first_p50_ms": {str(row["concurrency"]): row["added"]["first_p50_ms"] for row in streamed},  # type: ignore[index]
        "gateway_cpu_ms_whole": whole[-1]["gateway_cpu_ms"],
        "gateway_cpu_ms_whole_all_new": fresh["gateway_cpu_ms"],
        "gateway_cpu_ms_whole_long": long["gateway_cpu_ms"],
        "gateway_cpu_ms_streamed": streamed[-1]["gateway_cpu_ms"],
        "answers_per_s": whole[-1]["answers_per_s"],
        "streamed_per_s": streamed[-1]["answers_per_s"],
        "rows": [*rows, fresh, long],
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.gateway", description=__doc__)
    made.add_argument("--json", type=Path, help="write the figures here")
    made.add_argument("--seconds", type=float, default=6.0, help="per row")
    made.add_argument("--broker", default="auto", choices=["auto", "kafka", "embedded"])
    return made


def main() -> None:
    given = parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="triptych-bench-") as home:
        arguments = ["--model", MODEL, "--engine", "stub", "--workers", "1", "--broker", given.broker]
        arguments += ["--worker-args", f"--slots 1024 --step-ms {STEP_S * 1e3}"]
        with running(Path(home), *arguments) as stack:
            result = asyncio.run(bench(stack, given.seconds))
    print(json.dumps({key: value for key, value in result.items() if key != "rows"}, indent=2))
    if given.json:
        published.write(given.json, "stub", result)


if __name__ == "__main__":
    main()
