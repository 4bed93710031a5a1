"""How requests end that do not end by themselves: the client goes, time is over, the gateway stops, nobody answers."""

import asyncio
import json
import time
from typing import Any

import openai
import pytest

from gateway import answer, desk
from schemas.events import Failed
from tests.pipeline.conftest import MODEL, Gateway, listening
from tests.pipeline.scripted import Run, token
from tests.waiting import until

HELLO: Any = [{"role": "user", "content": "Say hello."}]
BODY = {"model": MODEL, "messages": HELLO}


async def speak_then_wait(run: Run) -> None:
    await run.say("Hel")
    await run.cancelled()


async def speak_for_ever(run: Run) -> None:
    while run.states[-1:] in ([], ["stored"]):
        await run.say("la ")
        await asyncio.sleep(0.02)


def terminal_of(gateway: Gateway, run: Run) -> Any:
    return gateway.hub.request(MODEL, run.job.head.request_id).stream[-1].events[-1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("script", [Run.cancelled, speak_then_wait])
async def test_a_client_that_goes_away_cancels_its_work_within_a_second(
    gateway: Gateway, stream: bool, script: Any
) -> None:
    gateway.pool.script = script
    port = int(gateway.url.rsplit(":", 1)[1])
    body = json.dumps(BODY | {"stream": stream}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await until(lambda: len(gateway.pool.runs) == 1)
    gone_at = time.monotonic()
    writer.close()
    await until(lambda: gateway.pool.runs[0].was_cancelled, within_s=1.0)
    assert time.monotonic() - gone_at < 1.0
    await until(lambda: len(gateway.open) == 0 and gateway.follower.following == 0)


async def test_a_client_that_closes_its_stream_early_cancels_the_rest(gateway: Gateway) -> None:
    gateway.pool.script = speak_then_wait
    stream = await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    await anext(stream)
    await stream.close()
    await until(lambda: gateway.pool.runs[0].was_cancelled, within_s=1.0)


async def test_the_deadline_before_the_first_chunk_is_a_504(gateway: Gateway) -> None:
    gateway.pool.script = Run.cancelled
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError, match="deadline") as raised:
            await gateway.client().chat.completions.create(
                model=MODEL, messages=HELLO, stream=stream, extra_headers={"x-request-timeout-s": "0.3"}
            )
        assert raised.value.status_code == 504
        assert terminal_of(gateway, gateway.pool.runs[-1]).code == "deadline_exceeded"


async def test_the_deadline_in_mid_stream_is_an_error_event(gateway: Gateway) -> None:
    gateway.pool.script = speak_for_ever
    texts = []
    with pytest.raises(openai.APIError, match="deadline") as raised:
        stream = await gateway.client().chat.completions.create(
            model=MODEL, messages=HELLO, stream=True, extra_headers={"x-request-timeout-s": "0.3"}
        )
        async for chunk in stream:
            texts.append(chunk.choices[0].delta.content)
    assert texts[:2] == ["", "la "]
    assert raised.value.code == "deadline_exceeded"
    run = gateway.pool.runs[0]
    await until(lambda: run.states[-1] == "ended")  # the worker hears of it with its next events
    assert isinstance(terminal_of(gateway, run), Failed)


async def test_a_worker_that_ends_first_at_the_deadline_is_believed(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        gateway.follower.hang_up()  # what it says is stored, but not heard in time
        await run.emit(token("in time", finish_reason="stop"))
        await run.finish()

    gateway.pool.script = script
    call = asyncio.create_task(
        gateway.client().chat.completions.create(
            model=MODEL, messages=HELLO, extra_headers={"x-request-timeout-s": "0.3"}
        )
    )
    await until(lambda: len(gateway.open) == 1)
    await until(lambda: len(gateway.open) == 1 and not gateway.follower.connected)
    await asyncio.sleep(0.35)  # past the deadline: this test is about time itself
    await gateway.follower.start()
    whole = await call
    assert whole.choices[0].message.content == "in time"


async def test_a_long_silence_before_the_first_token_sends_headers_and_keep_alives(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "HOLD_HEADERS_S", 0.1)
    monkeypatch.setattr(answer, "KEEP_ALIVE_S", 0.05)
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await go.wait()
        await run.fail("engine_died", "late")

    gateway.pool.script = script
    async with (
        gateway.http() as client,
        client.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}) as response,
    ):
        assert response.status_code == 200
        lines = response.aiter_lines()
        found = [line async for line in _first(lines, 4)]
        assert found == [": keep-alive", "", ": keep-alive", ""]
        go.set()
        rest = [line async for line in lines if line.startswith("data")]
    assert len(rest) == 1
    assert json.loads(rest[0].removeprefix("data: "))["error"]["code"] == "engine_died"


async def _first(lines: Any, count: int) -> Any:
    for _ in range(count):
        yield await anext(lines)


async def test_a_stopping_gateway_lets_streams_finish() -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await run.say("Hel")
        await go.wait()
        await run.emit(token("lo", finish_reason="stop"))
        await run.finish(2)

    async with listening(Gateway(drain_s=10)) as gateway:
        gateway.pool.script = script
        stream = await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        await anext(stream)
        gateway.life.stop()
        await until(lambda: _refused(gateway))
        go.set()
        rest = [chunk.choices[0].delta.content async for chunk in stream]
    assert "".join(text or "" for text in rest) == "Hello"


async def test_a_stopping_gateway_ends_what_does_not_finish_in_time_with_an_error() -> None:
    async with listening(Gateway(drain_s=0.3)) as gateway:
        gateway.pool.script = speak_then_wait
        client = gateway.client()
        stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        whole = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=HELLO))
        await until(lambda: len(gateway.open) == 2)
        gateway.life.stop()
        with pytest.raises(openai.APIError, match="shutting down"):
            async for _ in stream:
                pass
        with pytest.raises(openai.InternalServerError, match="shutting down") as raised:
            await whole
        assert raised.value.status_code == 503
        assert {terminal_of(gateway, run).code for run in gateway.pool.runs} == {"overloaded"}


async def _refused(gateway: Gateway) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))
    except ConnectionError:
        return True
    writer.close()
    return False


async def test_a_worker_that_dies_silently_does_not_hang_the_client_past_its_deadline(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.say("Hel")

    gateway.pool.script = script
    with pytest.raises(openai.APIError, match="deadline"):
        stream = await gateway.client().chat.completions.create(
            model=MODEL, messages=HELLO, stream=True, extra_headers={"x-request-timeout-s": "0.3"}
        )
        async for _ in stream:
            pass
    assert len(gateway.open) == 0


async def test_two_hundred_streams_leave_nothing_behind() -> None:
    async with listening(Gateway(max_open=200)) as gateway:
        await _two_hundred(gateway)


async def _two_hundred(gateway: Gateway) -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await run.say("Hel")
        await go.wait()
        await run.finish()

    gateway.pool.script = script
    client = gateway.client()
    await client.models.list()
    tasks_before = len(asyncio.all_tasks())

    async def one() -> None:
        async for _ in await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True):
            pass

    calls = [asyncio.create_task(one()) for _ in range(200)]
    await until(lambda: len(gateway.open) == 200 and len(gateway.pool.runs) == 200)
    go.set()
    await asyncio.gather(*calls)
    await until(lambda: len(asyncio.all_tasks()) <= tasks_before)
    assert (len(gateway.open), gateway.follower.following) == (0, 0)


async def test_a_client_that_goes_away_inside_its_request_is_no_fault_of_ours(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with gateway.http() as client:
        await client.get("/healthz")
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


async def test_a_client_that_does_not_read_does_not_hold_on_past_its_deadline(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        while run.states[-1:] in ([], ["stored"]):
            await run.say("x" * 60_000)
            await asyncio.sleep(0)

    gateway.pool.script = script
    body = json.dumps(BODY | {"stream": True}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]), limit=1_000)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-timeout-s: 0.5\r\n"
        b"content-length: %d\r\n\r\n" % len(body) + body
    )
    await until(lambda: len(gateway.open) == 1)
    await until(lambda: len(gateway.open) == 0, within_s=answer_bound_s())
    assert gateway.follower.following == 0
    writer.close()


def answer_bound_s() -> float:
    """The deadline, the last word to the store and the last word to the client."""
    return 0.5 + 2 * desk.LAST_WORD_S + 1


async def test_a_follower_that_is_closed_under_a_stream_ends_it_with_an_error(gateway: Gateway) -> None:
    gateway.pool.script = speak_then_wait
    stream = await gateway.client().chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    await anext(stream)
    await gateway.follower.close()
    with pytest.raises(openai.APIError, match="without an end"):
        async for _ in stream:
            pass
    await until(lambda: gateway.pool.runs[0].was_cancelled)
