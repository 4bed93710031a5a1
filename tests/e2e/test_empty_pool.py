"""Pools in which nobody works, on a whole stack: the stub engine, encoders and decoders that only take time (sim)."""

import asyncio
import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from infra import keys, redis_client
from infra.pool_members import RedisPoolMembers
from infra.settings import variable
from tests import services
from tests.pipeline.samples import image, text
from tests.stack import GATEWAY, Stack, free_port, running
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

MODEL = "smollm2-cascade"
VISION, SPEAKERS = "encode.vision", "decode.audio"
WAIT_S = 2
# Joining a group of the embedded broker takes a while.
JOIN_LIMIT_S = 60


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    nobody = ",".join(f"{pool}=0" for pool in (VISION, "encode.audio", SPEAKERS))
    arguments = ["--model", MODEL, "--workers", "1", "--engine", "stub", "--media-engine", "sim", "--scale", nobody]
    home, settings = tmp_path_factory.mktemp("empty"), {variable("pool_wait_s"): str(WAIT_S)}
    with running(home, *services.broker_wish(), *arguments, env=settings) as one:
        yield one


@contextmanager
def worker(stack: Stack, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One more worker of the stack, which its supervisor does not know."""
    own = {variable("worker"): name, variable("metrics_port"): str(free_port())}
    with (stack.home / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers", *arguments, "--engine", "sim"],
            stdout=log,
            stderr=log,
            env={**os.environ, **stack.environment(GATEWAY), **own},
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(5)


async def readiness(stack: Stack) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=stack.url, timeout=10) as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def see(stack: Stack) -> httpx.Response:
    picture = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(picture, "PNG")
    content = [image(picture.getvalue()), text("What is it?")]
    body = {"model": MODEL, "max_tokens": 3, "messages": [{"role": "user", "content": content}]}
    async with httpx.AsyncClient(base_url=stack.url, timeout=60) as client:
        return await client.post("/v1/chat/completions", json=body)


async def members(stack: Stack, pool: str) -> set[str]:
    async with aclosing(redis_client.connect(str(stack.describe()["redis"]), max_connections=1)) as client:
        (found,) = await RedisPoolMembers(client).look([pool])
        return set(found)


async def test_a_request_without_an_encoder_fails_in_time_and_the_same_one_works_once_there_is_one(
    stack: Stack,
) -> None:
    told = await readiness(stack)
    assert told["ready"] and set(told["degraded"]) == {VISION, "encode.audio", SPEAKERS}
    assert told["pools"][VISION] == "nobody works here"
    began = time.monotonic()
    refused = await see(stack)
    took_s = time.monotonic() - began
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (503, "pool_unavailable"), refused.text
    assert VISION in error["message"] and "retry-after" in refused.headers
    assert WAIT_S <= took_s < WAIT_S + 3

    with worker(stack, "eye", "encode", "--pool", "vision") as eye:

        async def is_there() -> bool:
            return bool((await readiness(stack))["pools"][VISION] == "ok: 1 worker")

        await until(is_there, JOIN_LIMIT_S, every_s=0.2)
        answered = await see(stack)
        assert answered.status_code == 200, answered.text
        shown = await asyncio.to_thread(status, stack)
        assert VISION in shown and "eye" in shown and "nobody works here" in shown
        eye.terminate()
        assert await asyncio.to_thread(eye.wait, 30) == 0
        assert await members(stack, VISION) == set()  # at once


async def test_a_killed_worker_counts_no_longer_than_its_lease(stack: Stack) -> None:
    with worker(stack, "voice", "decode", "--kind", "audio") as voice:

        async def is_there() -> bool:
            return await members(stack, SPEAKERS) == {"voice"}

        await until(is_there, JOIN_LIMIT_S, every_s=0.1)
        await until(lambda: asyncio.to_thread(workers, stack, SPEAKERS, 1), 5)
        voice.kill()
        await until(lambda: asyncio.to_thread(workers, stack, SPEAKERS, 0), keys.LEASE_TTL_MS / 1000 + 2)


def workers(stack: Stack, pool: str, count: int) -> bool:
    return stack.metric("triptych_pool_workers", pool=pool) == count


def status(stack: Stack) -> str:
    command = [sys.executable, "-m", "cli", "status", "--home", str(Path(stack.home))]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
