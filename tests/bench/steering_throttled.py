"""One of two vLLM workers runs only a share of the time: how much of the work does steering still give it?

Clients that ask again the moment they are answered; prompts of about 400 tokens that nobody holds, and short answers:
what a worker can do is how fast it computes prompts, so in proportion to that it should be given them. (With long
answers to few clients the best share of a slow worker is none: one sequence more hardly slows a fast one's steps.)
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import openai
import psutil

from infra import redis_client
from infra.leases import RedisLeases
from infra.prefix_index import PrefixIndex
from schemas.steering import WorkerView
from tests.bench.throttle import throttled
from tests.stack import Stack
from topics.steering.placer import living

CLIENTS, WARM_UP, MEASURED, ANSWER_TOKENS = 8, 24, 96, 4
SLOW = "llm-1"
PARTITIONS = 12
STEP_TOKENS = 256
WORDS = ("river", "mill", "hill", "stone", "bridge", "green", "old", "quiet", "north", "wind", "road", "field", "lamp")


class Outcome(msgspec.Struct, frozen=True):
    policy: str
    share: float  # of the time in which the slow worker may run
    requests: dict[str, int]  # by worker, warm-up left out
    slow_share: float  # of these requests
    due_share: float  # what it would get in proportion to the time it may run
    learned_share: (
        float  # what it would get in proportion to the prompt tokens that each computes in a second, as learned
    )
    prefill_tokens_s: dict[str, float]  # learned, a step's other costs included, by worker
    requests_s: float


async def run(stack: Stack, model: str, policy: str, share: float) -> Outcome:
    processes = [
        child for child in psutil.Process(stack.pid(SLOW)).children(recursive=True) if child.name().startswith("VLLM")
    ]
    assert processes, "the slow worker has no engine processes"
    with throttled(processes, share):
        loop = asyncio.get_running_loop()
        seen, began = await _drive(stack, model)
        took_s = loop.time() - began
        views = await _views(stack, model)
    return outcome(policy, share, seen, views, took_s)


def outcome(policy: str, share: float, served_by: Sequence[str], views: Sequence[WorkerView], took_s: float) -> Outcome:
    counts = Counter(served_by)
    speeds = {view.worker.rpartition(":")[0]: _prefill_tokens_s(view) for view in views}
    return Outcome(
        policy,
        share,
        dict(sorted(counts.items())),
        counts[SLOW] / len(served_by),
        share / (1.0 + share),
        speeds[SLOW] / sum(speeds.values()),
        speeds,
        len(served_by) / took_s,
    )


def _prefill_tokens_s(view: WorkerView) -> float:
    """With the budget of a CPU's steps, all of it for prompts."""
    step_s = view.step_base_s + view.step_per_sequence_s + STEP_TOKENS / view.prefill_tokens_per_s
    return STEP_TOKENS / step_s


async def _drive(stack: Stack, model: str) -> tuple[list[str], float]:
    """Which worker answered each request after the warm-up, and when that ended."""
    seen: list[str] = []
    began, todo = 0.0, list(range(WARM_UP + MEASURED))[::-1]
    loop = asyncio.get_running_loop()
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=600) as client:

        async def ask_on() -> None:
            nonlocal began
            while todo:
                number = todo.pop()
                if number == WARM_UP:
                    began = loop.time()
                answer = await client.chat.completions.with_raw_response.create(
                    model=model,
                    messages=[
                        {"role": "user", "content": _prompt(number)},
                    ],
                    max_tokens=ANSWER_TOKENS,
                    temperature=0,
                    extra_body={"ignore_eos": True},
                )
                if number >= WARM_UP:
                    seen.append(answer.headers["x-triptych-worker"])

        await asyncio.gather(*(ask_on() for _ in range(CLIENTS)))
    return seen, began


def _prompt(number: int) -> str:
    """No block of it is like any other's."""
    rng = random.Random(number)
    return f"Story {number}: " + " ".join(rng.choice(WORDS) for _ in range(370))


async def _views(stack: Stack, model: str) -> list[WorkerView]:
    async with aclosing(redis_client.connect(str(stack.describe()["redis"]), max_connections=2)) as client:
        view = await RedisLeases(client, model).view(PARTITIONS)
        return (await PrefixIndex(client, model).look([], living(view))).views
