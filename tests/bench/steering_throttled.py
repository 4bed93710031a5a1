"""One of two vLLM workers runs only a share of the time: how much of the work does steering still give it?

Clients that ask again the moment they are answered; one system prompt, which both workers hold soon, and answers of
forty tokens: what counts is how fast a worker decodes. With its processes stopped for 60 % of the time a worker is 0.4
times as fast, so of all tokens 0.4 / 1.4 are its due; learned step times tell the same from what the workers say.
"""

import asyncio
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

CLIENTS, WARM_UP, MEASURED, ANSWER_TOKENS = 8, 40, 120, 40
SLOW = "llm-1"
PARTITIONS = 12


class Outcome(msgspec.Struct, frozen=True):
    policy: str
    share: float  # of the time in which the slow worker may run
    requests: dict[str, int]  # by worker, warm-up left out
    slow_share: float  # of these requests
    due_share: float  # what it would get in proportion to the time it may run
    learned_share: float  # the same from learned step times, with as many sequences on both
    step_s: dict[str, float]  # learned, with so many sequences, by worker
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
    half = CLIENTS / 2
    steps = {view.worker.rpartition(":")[0]: view.step_base_s + half * view.step_per_sequence_s for view in views}
    speeds = {worker: 1.0 / step_s for worker, step_s in steps.items()}
    return Outcome(
        policy,
        share,
        dict(sorted(counts.items())),
        counts[SLOW] / len(served_by),
        share / (1.0 + share),
        speeds[SLOW] / sum(speeds.values()),
        steps,
        len(served_by) / took_s,
    )


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
                        {"role": "system", "content": "You tell stories of old mills and rivers. " * 8},
                        {"role": "user", "content": f"Story number {number}, please."},
                    ],
                    max_tokens=ANSWER_TOKENS,
                    temperature=0,
                    extra_body={"ignore_eos": True},
                )
                if number >= WARM_UP:
                    seen.append(answer.headers["x-triptych-worker"])

        await asyncio.gather(*(ask_on() for _ in range(CLIENTS)))
    return seen, began


async def _views(stack: Stack, model: str) -> list[WorkerView]:
    async with aclosing(redis_client.connect(str(stack.describe()["redis"]), max_connections=2)) as client:
        view = await RedisLeases(client, model).view(PARTITIONS)
        return (await PrefixIndex(client, model).look([], living(view))).views
