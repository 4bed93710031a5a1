"""`python -m tests.bench.steering_real --json FILE`: steering on the real engine; `--throttle 0.4`: with a slow worker.

Two vLLM CPU workers with SmolLM2-135M; conversations that share one of twelve system prompts of about 1,500 tokens,
more than one worker's KV cache holds. The same requests in the same order for each policy, one warm-up round
unmeasured. Hit rate is cached prompt tokens / prompt tokens as the engine reports them; time to first token is the
client's.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import openai

from tests.bench import published, steering_throttled
from tests.bench.load import percentile
from tests.stack import Stack, running

MODEL = "smollm2-135m"
GROUPS, ROUNDS, CONCURRENCY = 12, 5, 2
WORKERS = 2
WORDS = ("river", "mill", "hill", "stone", "bridge", "green", "old", "quiet", "north", "wind", "road", "field", "lamp")


class Seen(msgspec.Struct, frozen=True):
    round: int
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float


def system_prompt(group: int) -> str:
    """About 1,500 tokens that no other group shares a block of."""
    rng = random.Random(group)
    return f"Handbook {group}. " + " ".join(rng.choice(WORDS) for _ in range(1_450))


async def ask(client: openai.AsyncOpenAI, number: int, group: int, round_: int) -> Seen:
    start, ttft_s, usage = time.perf_counter(), 0.0, None
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": system_prompt(group)},
            {"role": "user", "content": f"Question {number}: what is on page {number * 7 % 31}?"},
        ],
        max_tokens=4,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        if not ttft_s and chunk.choices and chunk.choices[0].delta.content:
            ttft_s = time.perf_counter() - start
        usage = chunk.usage or usage
    assert usage is not None and usage.prompt_tokens_details is not None
    return Seen(round_, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0, ttft_s)


async def drive(stack: Stack, rounds: int) -> list[Seen]:
    """Round after round, the groups of each in an order of its own; CONCURRENCY at once."""
    rng = random.Random(1)
    order = [(round_, group) for round_ in range(rounds) for group in rng.sample(range(GROUPS), GROUPS)]
    seen: list[Seen] = []
    todo = list(enumerate(order))[::-1]

    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=300) as client:

        async def worker() -> None:
            while todo:
                number, (round_, group) = todo.pop()
                seen.append(await ask(client, number, group, round_))

        await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return seen


def figures(policy: str, seen: list[Seen]) -> dict[str, object]:
    measured = [one for one in seen if one.round > 0]
    ttft_s = [one.ttft_s for one in measured]
    return {
        "policy": policy,
        "engine": "vllm on the CPU, SmolLM2-135M",
        "requests": len(measured),
        "hit_rate": round(sum(one.cached_tokens for one in measured) / sum(one.prompt_tokens for one in measured), 3),
        "ttft_p50_s": round(percentile(ttft_s, 0.5), 3),
        "ttft_p90_s": round(percentile(ttft_s, 0.9), 3),
        "ttft_mean_s": round(sum(ttft_s) / len(ttft_s), 3),
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.steering_real", description=__doc__)
    made.add_argument("--json", type=Path, help="write the figures here")
    made.add_argument("--arms", default="affinity,round_robin", help="policies, comma-separated")
    made.add_argument("--rounds", type=int, default=ROUNDS, help="the first one warms up")
    made.add_argument(
        "--throttle", type=float, help="let one of the two workers run this share of the time: who gets how much?"
    )
    return made


def main() -> None:
    given = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the stack is stopped, nobody stays throttled
    rows: list[dict[str, object]] = []
    for policy in given.arms.split(","):
        with (
            tempfile.TemporaryDirectory(prefix="triptych-bench-") as home,
            running(
                Path(home), "--model", MODEL, "--workers", str(WORKERS), env={"TRIPTYCH_STEERING": policy}
            ) as stack,
        ):
            if given.throttle is None:
                rows.append(figures(policy, asyncio.run(drive(stack, given.rounds))))
            else:
                outcome = asyncio.run(steering_throttled.run(stack, MODEL, policy, given.throttle))
                rows.append(msgspec.to_builtins(outcome))
            print(json.dumps(rows[-1]), flush=True)
        if given.json:  # after each, so that what was measured is kept
            made = {"workers": WORKERS, "groups": GROUPS, "rounds": given.rounds, "rows": rows}
            published.write(given.json, "vllm", made)


if __name__ == "__main__":
    main()
