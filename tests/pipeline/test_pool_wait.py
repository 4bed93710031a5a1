"""Requests that need a pool where nobody works: they wait for a while, then fail with its name; and run no later."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway import media_pools
from tests.pipeline.conftest import Gateway, listening
from tests.pipeline.models import CASCADE, DRAWS, MODEL
from tests.pipeline.samples import WAV, image, text
from tests.pipeline.scripted import WORKER, Run, hello, token
from tests.waiting import until

WAIT_S = 0.15


async def nobody(run: Run) -> None:
    """Takes the job."""


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(media_pools, "LOOK_S", 0.02)
    async with listening(Gateway(pool_wait_s=WAIT_S)) as one:
        yield one


async def leave(gateway: Gateway, pool: str) -> None:
    await gateway.members.leave(pool, WORKER.worker)
    await until(lambda: gateway.media_pools.workers(pool) == 0)


async def post(gateway: Gateway, path: str, body: dict[str, Any]) -> httpx.Response:
    async with gateway.http() as client:
        return await client.post(path, json=body)


def seeing(**more: Any) -> dict[str, Any]:
    content = [image(), text("What is it?")]
    return {"model": CASCADE.id, "messages": [{"role": "user", "content": content}], **more}


SPEAKING: dict[str, Any] = {
    "model": CASCADE.id,
    "messages": [{"role": "user", "content": "Say hello."}],
    "modalities": ["text", "audio"],
    "audio": {"voice": "heart", "format": "wav"},
}


def check(response: httpx.Response, pool: str) -> None:
    assert response.status_code == 503
    error = response.json()["error"]
    assert (error["code"], error["type"]) == ("pool_unavailable", "server_error")
    assert pool in error["message"]
    assert int(response.headers["retry-after"]) > 0
    assert "x-should-retry" not in response.headers


async def test_a_picture_without_an_encoder_fails_with_the_name_of_the_pool_and_is_not_encoded_later(
    gateway: Gateway,
) -> None:
    await leave(gateway, "encode.vision")
    gateway.pool.encoder = nobody
    check(await post(gateway, "/v1/chat/completions", seeing()), "encode.vision")
    (job,) = gateway.pool.encode_jobs
    assert await gateway.results.wishes([job.head]) == ["ended"]
    assert gateway.pool.jobs == []
    assert 'outcome="pool_unavailable"' in gateway.metrics.render().decode()


async def test_a_stream_that_has_not_begun_has_the_status_too(gateway: Gateway) -> None:
    await leave(gateway, "encode.vision")
    gateway.pool.encoder = nobody
    check(await post(gateway, "/v1/chat/completions", seeing(stream=True)), "encode.vision")


async def test_a_picture_that_an_encoder_takes_within_the_grace_is_answered(gateway: Gateway) -> None:
    await leave(gateway, "encode.vision")

    async def late(run: Run) -> None:
        await gateway.members.stay("encode.vision", "late")
        await until(lambda: gateway.media_pools.workers("encode.vision") == 1)
        await asyncio.sleep(2 * WAIT_S)  # longer than the grace: somebody is at work
        await gateway.encoder(run)

    gateway.pool.encoder = late
    response = await post(gateway, "/v1/chat/completions", seeing())
    assert response.status_code == 200, response.text


async def test_an_answer_goes_on_when_the_encoders_leave_after_their_work(gateway: Gateway) -> None:
    async def long(run: Run) -> None:
        await gateway.members.leave("encode.vision", WORKER.worker)
        await asyncio.sleep(3 * WAIT_S)  # longer than the grace
        await hello(run)

    gateway.pool.script = long
    response = await post(gateway, "/v1/chat/completions", seeing())
    assert response.status_code == 200, response.text


async def test_text_does_not_care_and_neither_does_a_picture_that_is_known(gateway: Gateway) -> None:
    assert (await post(gateway, "/v1/chat/completions", seeing())).status_code == 200
    for pool in gateway.media_pools:
        await leave(gateway, pool)

    async def long(run: Run) -> None:
        await asyncio.sleep(2 * WAIT_S)  # longer than the grace
        await hello(run)

    gateway.pool.script = long
    hi = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    for body in (hi, seeing()):
        assert (await post(gateway, "/v1/chat/completions", body)).status_code == 200


async def test_speech_without_a_decoder_fails_and_is_not_spoken_later(gateway: Gateway) -> None:
    await leave(gateway, "decode.audio")
    gateway.pool.decoder = nobody
    body = {"model": CASCADE.id, "input": "Hello.", "voice": "heart", "response_format": "pcm"}
    check(await post(gateway, "/v1/audio/speech", body), "decode.audio")
    assert (await gateway.results.claim(gateway.pool.decode_jobs[0].head, WORKER, 3)).state == "done"


async def test_a_transcription_without_an_encoder_fails(gateway: Gateway) -> None:
    await leave(gateway, "encode.audio")
    gateway.pool.encoder = nobody
    async with gateway.http() as client:
        files = {"file": ("a.wav", WAV)}
        answer = await client.post("/v1/audio/transcriptions", data={"model": CASCADE.id}, files=files)
    check(answer, "encode.audio")
    assert await gateway.results.wishes([gateway.pool.encode_jobs[0].head]) == ["ended"]


async def test_a_spoken_answer_without_a_decoder_fails_and_its_parts_are_cancelled(gateway: Gateway) -> None:
    await leave(gateway, "decode.audio")

    async def script(run: Run) -> None:
        await run.say("One.")
        await gateway.pool.part(run, "audio", 0, text="One.")
        await run.emit(token("", finish_reason="stop"))
        await run.finish(1)

    gateway.pool.script, gateway.pool.decoder = script, nobody
    check(await post(gateway, "/v1/chat/completions", SPEAKING), "decode.audio")
    (job,) = gateway.pool.decode_jobs

    async def cancelled() -> bool:
        return await gateway.results.wishes([job.head]) == ["cancelled"]

    await until(cancelled)


async def test_a_spoken_stream_that_has_begun_ends_with_the_error(gateway: Gateway) -> None:
    await leave(gateway, "decode.audio")

    async def script(run: Run) -> None:
        await run.say("One. ")
        await gateway.pool.part(run, "audio", 0, text="One.")
        while run.states[-1] == "stored":
            await run.say("And more. ")
            await asyncio.sleep(0.01)

    gateway.pool.script, gateway.pool.decoder = script, nobody
    body = SPEAKING | {"stream": True, "audio": {"voice": "heart", "format": "pcm16"}}
    response = await post(gateway, "/v1/chat/completions", body)
    assert response.status_code == 200
    assert "pool_unavailable" in response.text and "decode.audio" in response.text
    (run,) = gateway.pool.runs
    await until(lambda: run.states[-1] == "ended")


async def test_a_picture_without_a_decoder_fails(gateway: Gateway) -> None:
    await leave(gateway, "decode.image")

    async def script(run: Run) -> None:
        await gateway.pool.part(run, "image", 0, codes=[1, 2])
        await run.emit(token("", finish_reason="stop"))
        await run.finish(1)

    gateway.pool.script, gateway.pool.decoder = script, nobody
    check(await post(gateway, "/v1/images/generations", {"model": DRAWS.id, "prompt": "a seven"}), "decode.image")


async def test_what_was_made_before_the_decoders_left_reaches_a_client_that_reads_slowly(gateway: Gateway) -> None:
    async def made(run: Run) -> None:
        await run.made(b"sound" * 4_000_000, "One.")
        await run.finish(0)
        await gateway.members.leave("decode.audio", WORKER.worker)

    gateway.pool.decoder = made
    body = {"model": CASCADE.id, "input": "One.", "voice": "heart", "response_format": "pcm"}
    async with gateway.http() as client, client.stream("POST", "/v1/audio/speech", json=body) as response:
        await until(lambda: gateway.media_pools.workers("decode.audio") == 0)
        await asyncio.sleep(3 * WAIT_S)  # longer than the grace, without reading
        got = await response.aread()
    assert len(got) == 20_000_000
