"""Every error has OpenAI's shape and the right status; after the first chunk it is an event that the SDK raises."""

import asyncio
from typing import Any

import openai
import pytest

from infra.memory import MemorySignals
from schemas.errors import TriptychError
from schemas.events import Restarted
from tests.pipeline.conftest import MODEL, Gateway, listening
from tests.pipeline.scripted import Run
from tests.waiting import until

HELLO: Any = [{"role": "user", "content": "Say hello."}]
GOOD = {"model": MODEL, "messages": HELLO}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("invalid_request", openai.BadRequestError, 400),
        ("engine_died", openai.InternalServerError, 500),
        ("too_many_attempts", openai.InternalServerError, 500),
        ("overloaded", openai.InternalServerError, 503),
        ("deadline_exceeded", openai.InternalServerError, 504),
        ("a_code_of_tomorrow", openai.InternalServerError, 500),
    ],
)
async def test_an_error_before_the_first_chunk_has_its_real_status(
    gateway: Gateway, code: str, kind: type[openai.APIStatusError], status: int, stream: bool
) -> None:
    async def script(run: Run) -> None:
        await run.fail(code, "this is why")

    gateway.pool.script = script
    with pytest.raises(kind, match="this is why") as raised:
        await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, stream=stream)
    assert raised.value.status_code == status
    assert raised.value.code == (code if code != "a_code_of_tomorrow" else "internal")


async def test_an_error_after_the_first_chunk_is_raised_by_the_sdk_and_ends_the_stream(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.say("Hel")
        await run.fail("engine_died", "the engine died")

    gateway.pool.script = script
    texts = []
    with pytest.raises(openai.APIError, match="the engine died") as raised:
        async for chunk in await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, stream=True):
            texts.append(chunk.choices[0].delta.content)
    assert texts == ["", "Hel"]
    assert raised.value.code == "engine_died"
    assert raised.value.type == "server_error"


async def test_nothing_follows_an_error_in_a_stream(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.say("Hel")
        await run.fail("engine_died")

    gateway.pool.script = script
    async with gateway.http() as client:
        response = await client.post("/v1/chat/completions", json=GOOD | {"stream": True})
    assert response.text.endswith('"code":"engine_died"}}\n\n')
    assert "[DONE]" not in response.text


async def test_a_stream_that_would_start_over_is_an_error(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.say("Hel")
        await run.emit(Restarted(0, 0))
        await run.cancelled()

    gateway.pool.script = script
    with pytest.raises(openai.APIError, match="worker was lost"):
        async for _ in await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, stream=True):
            pass


async def test_a_bus_that_does_not_take_the_job_is_a_503_and_the_sdk_tries_again(gateway: Gateway) -> None:
    gateway.pool.refuse = TriptychError("overloaded", "the bus is full", retry_after_s=1)
    with pytest.raises(openai.InternalServerError, match="the bus is full") as raised:
        await gateway.client().chat.completions.create(model=MODEL, messages=HELLO)
    assert raised.value.status_code == 503
    assert raised.value.response.headers["retry-after"] == "1"
    assert "x-should-retry" not in raised.value.response.headers


async def test_an_error_that_another_attempt_cannot_mend_says_so_to_the_sdk(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.fail("too_many_attempts")

    gateway.pool.script = script
    with pytest.raises(openai.InternalServerError):
        await gateway.client(max_retries=2).chat.completions.create(model=MODEL, messages=HELLO)
    assert len(gateway.pool.jobs) == 1


async def test_a_fault_of_ours_shows_no_insides(gateway: Gateway) -> None:
    gateway.pool.refuse = RuntimeError("secret /etc/path")
    async with gateway.http() as client:
        response = await client.post("/v1/chat/completions", json=GOOD)
    assert response.status_code == 500
    assert response.json()["error"] == {
        "message": "The gateway failed on this request.",
        "type": "server_error",
        "param": None,
        "code": "internal",
    }


async def test_too_many_open_requests_are_a_429_that_says_when_to_come_back() -> None:
    async with listening(Gateway(max_open=1)) as gateway, gateway.http() as client:
        gateway.pool.script = Run.cancelled
        first = asyncio.create_task(client.post("/v1/chat/completions", json=GOOD))
        await until(lambda: len(gateway.open) == 1)
        with pytest.raises(openai.RateLimitError) as raised:
            await gateway.client().chat.completions.create(model=MODEL, messages=HELLO)
        assert raised.value.response.headers["retry-after"] == "1"
        first.cancel()
        await until(lambda: len(gateway.open) == 0)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("POST", "/v1/chat/completions", b'{"model":', {}, 400, "invalid_json"),
        ("POST", "/v1/chat/completions", b"\xff", {}, 400, "invalid_json"),
        ("POST", "/v1/chat/completions", b"", {}, 400, "invalid_json"),
        ("POST", "/v1/chat/completions", b'{"model":"tiny"}', {}, 400, "missing_parameter"),
        ("POST", "/v1/chat/completions", b"a=b", {"content-type": "application/x-www-form-urlencoded"}, 415, None),
        ("POST", "/v1/chat/completions", b" " * (1 << 20) + b"{}", {}, 413, "request_too_large"),
        ("GET", "/v1/chat/completions", b"", {}, 405, "method_not_allowed"),
        ("GET", "/v1/nothing", b"", {}, 404, "not_found"),
        ("GET", "/v1/models/nobody", b"", {}, 404, "model_not_found"),
        ("GET", "/docs/assets/nothing.js", b"", {}, 404, "not_found"),
    ],
)
async def test_whatever_is_refused_is_refused_in_one_shape(
    gateway: Gateway, method: str, path: str, body: bytes, headers: dict[str, str], status: int, code: str | None
) -> None:
    async with gateway.http() as client:
        response = await client.request(method, path, content=body, headers=headers)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == (code or "unsupported_media_type")
    assert error["type"] == "invalid_request_error"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("seconds", ["0", "-1", "61", "soon", "nan"])
async def test_a_timeout_out_of_range_is_a_400(gateway: Gateway, seconds: str) -> None:
    async with gateway.http() as client:
        response = await client.post("/v1/chat/completions", json=GOOD, headers={"x-request-timeout-s": seconds})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "x-request-timeout-s"


async def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers(gateway: Gateway) -> None:
    messages: Any = [{"role": "user", "content": "zq" * 400}]
    with pytest.raises(openai.BadRequestError, match=r"600 tokens.*requested \d{3} tokens") as raised:
        await gateway.client().chat.completions.create(model=MODEL, messages=messages)
    assert raised.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="14 in the messages, 590 in the completion"):
        await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, max_tokens=590)
    assert gateway.pool.jobs == []


async def test_a_prompt_that_cannot_fit_is_refused_without_counting(gateway: Gateway) -> None:
    messages: Any = [{"role": "user", "content": "zq" * 100_000}]
    with pytest.raises(openai.BadRequestError, match="more than") as raised:
        await gateway.client().chat.completions.create(model=MODEL, messages=messages)
    assert raised.value.code == "context_length_exceeded"


async def test_a_refused_request_leaves_no_cancel_behind(gateway: Gateway) -> None:
    cancels: list[str] = []
    listening_to_signals = asyncio.create_task(_collect(gateway, cancels))
    with pytest.raises(openai.BadRequestError):
        await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, max_tokens=10_000)
    await gateway.client().chat.completions.create(model=MODEL, messages=HELLO)
    listening_to_signals.cancel()
    assert cancels == []


async def _collect(gateway: Gateway, cancels: list[str]) -> None:
    async for signal in MemorySignals(gateway.hub).listen(MODEL):
        cancels.append(signal.request_id)
