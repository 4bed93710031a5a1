"""Redis is emptied, or a gateway killed, under load: no request is lost, and steering finds its caches again."""

import asyncio
import json
import urllib.request
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests import services, stack
from tests.bench.load import closed_loop
from tests.stack import Stack
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]

MODEL, GROUPS = "smollm2-135m", 6


def body(stream: bool, number: int) -> dict[str, object]:
    system = f"Handbook {number % GROUPS}. " + "the long shared beginning of a conversation " * 60
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"Question {number}"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 16, "stream": stream}


def cached_tokens(one: Stack, number: int) -> int:
    """Of a fresh question to a known group: what the worker's cache held of it."""
    data = json.dumps(body(False, number)).encode()
    request = urllib.request.Request(
        f"{one.url}/v1/chat/completions", data, {"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return int(json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("stream", [False, True])
async def test_emptying_redis_under_load_loses_no_request(tmp_path: Path, stream: bool) -> None:
    arguments = ["--model", MODEL, "--engine", "sim", "--workers", "3", "--worker-args", "--speedup 4"]
    with stack.running(tmp_path / "home", *arguments, *services.broker_wish()) as one:
        port = int(one.url.rsplit(":", 1)[1])
        load = asyncio.create_task(closed_loop(port, partial(body, stream), concurrency=12, seconds=12.0))
        await asyncio.sleep(4.0)  # mid-load; the moment must not matter
        async with Redis.from_url(str(one.describe()["redis"])) as redis:
            await redis.flushall()
        run = await load
        assert run.errors == []
        assert len(run.samples) > 100
        # The caches of the workers were never gone; once their lives are in the index again, it knows them.
        await until(lambda: asyncio.to_thread(cached_tokens, one, 10_000 + GROUPS), within_s=10, every_s=0.5)


async def test_what_a_killed_gateway_had_taken_in_ends_all_the_same(tmp_path: Path) -> None:
    arguments = ["--model", MODEL, "--engine", "sim", "--workers", "2", "--worker-args", "--speedup 4"]
    with stack.running(tmp_path / "home", *arguments, *services.broker_wish()) as one:
        port = int(one.url.rsplit(":", 1)[1])
        load = asyncio.create_task(closed_loop(port, partial(body, True), concurrency=12, seconds=2.0))
        await asyncio.sleep(1.0)
        one.kill("gateway")
        await asyncio.gather(load, return_exceptions=True)  # its clients see it go; that is not what is asked here
        await one.ready_again(60)

        async with Redis.from_url(str(one.describe()["redis"])) as redis:

            async def all_ended() -> bool:
                states = [key async for key in redis.scan_iter("tri:*:req:*")]
                return all([await redis.hget(state, "done") for state in states]) and bool(states)

            await until(all_ended, within_s=30, every_s=0.2)
        assert await one.nothing_runs()
