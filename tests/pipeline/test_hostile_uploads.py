"""Uploads over a real connection, by clients that lie, dawdle or go away."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tests.pipeline.conftest import Gateway
from tests.waiting import until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
FORM = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
HEADERS = {"content-type": "multipart/form-data; boundary=x"}


async def test_client_that_goes_away_in_mid_upload_leaves_nothing(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /v1/files HTTP/1.1\r\nhost: {host}\r\ncontent-length: 90000\r\ncontent-type: {HEADERS['content-type']}"
    )
    writer.write(head.encode() + b"\r\n\r\n" + FORM + PNG)
    await until(lambda: gateway.uploads._receiving == 1)
    writer.close()
    await until(lambda: gateway.uploads._receiving == 0)
    assert gateway.blobs._objects == {}
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
    await gateway.client().files.create(file=("a.png", PNG), purpose="vision")


async def test_upload_that_does_not_say_how_long_it_is_ends_where_it_is_too_large(gateway: Gateway) -> None:
    async def long() -> AsyncIterator[bytes]:
        yield FORM + PNG
        for _ in range(100):
            yield bytes(10_000)

    async with gateway.http() as client:
        answer = await client.post("/v1/files", content=long(), headers=HEADERS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_too_large")
    assert gateway.blobs._objects == {}


async def test_upload_that_is_announced_as_too_large_is_not_read(gateway: Gateway) -> None:
    async with gateway.http() as client:
        answer = await client.post("/v1/files", content=FORM + PNG + bytes(1_000_000), headers=HEADERS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


async def test_content_that_is_not_wanted_to_its_end_does_no_harm(gateway: Gateway) -> None:
    made = await gateway.client().files.create(file=("a.png", PNG + bytes(90_000)), purpose="vision")
    async with gateway.http() as client, client.stream("GET", f"/v1/files/{made.id}/content") as answer:
        assert await anext(answer.aiter_raw(10)) == PNG[:10]
    assert (await gateway.client().files.content(made.id)).content == PNG + bytes(90_000)
