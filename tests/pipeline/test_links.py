"""The URLs that clients are given, opened by a client that reaches nothing but the gateway."""

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import httpx
import pytest

from gateway import outputs as under_test
from schemas.refs import BlobRef
from tests.pipeline.conftest import Gateway, listening
from tests.pipeline.models import DRAWS
from tests.pipeline.samples import PNG, WAV
from tests.pipeline.test_drawn import DRAW, DRAWN, draws
from tests.waiting import until


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    gateway.pool.script = draws(gateway)
    async with gateway.http() as one:
        yield one


async def drawn(client: httpx.AsyncClient, **headers: str) -> str:
    """The URL of a picture."""
    answer = await client.post(
        "/v1/chat/completions", json={"model": DRAWS.id, "messages": DRAW}, headers=headers, timeout=30
    )
    assert answer.status_code == 200, answer.text
    url = answer.json()["choices"][0]["message"]["content"][1]["image_url"]["url"]
    assert isinstance(url, str)
    return url


async def test_a_picture_s_url_opens_for_the_client_that_got_it(gateway: Gateway, client: httpx.AsyncClient) -> None:
    url = await drawn(client)
    assert url.startswith(f"{gateway.url}/v1/outputs/")
    async with httpx.AsyncClient() as stranger:  # no credentials, no cookies
        opened, looked = await stranger.get(url), await stranger.head(url)
    assert (opened.status_code, opened.content) == (200, DRAWN)
    assert (looked.status_code, looked.content) == (200, b"")
    for answer in (opened, looked):
        headers = answer.headers
        assert headers["content-type"] == "image/png"
        assert headers["content-length"] == str(len(DRAWN))
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-disposition"] == 'inline; filename="output.png"'
        assert headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert headers["cache-control"].startswith("private, max-age=3")


async def test_every_way_of_asking_for_a_url_gives_one_that_opens(gateway: Gateway, client: httpx.AsyncClient) -> None:
    made = await gateway.client().images.generate(model=DRAWS.id, prompt="x", response_format="url")
    assert made.data is not None
    streamed = await client.post("/v1/chat/completions", json={"model": DRAWS.id, "messages": DRAW, "stream": True})
    of_stream = streamed.text.partition('"url":"')[2].partition('"')[0]
    for url in (made.data[0].url or "", of_stream):
        assert (await client.get(url)).content == DRAWN


async def test_it_is_given_by_the_name_that_the_client_has_for_the_gateway(client: httpx.AsyncClient) -> None:
    url = await drawn(client, host="gpu-box.lan:8123")
    assert url.startswith("http://gpu-box.lan:8123/v1/outputs/")
    assert (await client.get(httpx.URL(url).path)).content == DRAWN


async def test_what_is_no_link_or_leads_nowhere_any_more_is_not_found(
    gateway: Gateway, client: httpx.AsyncClient
) -> None:
    url = await drawn(client)
    announced = await upload_of(client, PNG)
    for path in (url[:-4] + "AAAA", "/v1/outputs/x", announced.replace("/uploads/", "/outputs/")):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    for key in [key for key in gateway.blobs._objects if key.startswith("outputs/")]:
        await gateway.blobs.delete(key)
    for answer in (await client.get(url), await client.head(url)):
        assert answer.status_code == 404


async def test_a_store_that_clients_can_reach_serves_them_itself() -> None:
    async with listening(Gateway(presigned=True)) as gateway, gateway.http() as client:
        gateway.pool.script = draws(gateway)
        assert (await drawn(client)).startswith("memory:outputs/")
        assert (await upload_of(client, PNG)).startswith("memory:uploads/")
        assert (await client.get("/v1/outputs/x")).json()["error"]["message"].startswith("Unknown request URL")


async def test_clients_that_do_not_read_cost_themselves_and_at_most_so_many(
    gateway: Gateway, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "AT_ONCE", 2)
    monkeypatch.setattr(under_test, "SEND_LIMIT_S", 1.0)
    large = bytes(32 << 20)
    ref = BlobRef("outputs/large/0", hashlib.sha256(large).hexdigest(), len(large), "image/png")
    await gateway.blobs.put(ref, large)
    path, port = gateway.links.output(ref, 60, ""), httpx.URL(gateway.url).port
    assert port is not None
    async with AsyncExitStack() as idle:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            idle.callback(writer.close)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's reader would take all it can
        refused = await client.get(path)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.get("/healthz")).status_code == 200
        await until(partial(_opens, client, path), 10)


async def _opens(client: httpx.AsyncClient, path: str) -> bool:
    async with client.stream("GET", path) as answer:
        return answer.status_code == 200


async def upload_of(client: httpx.AsyncClient, data: bytes) -> str:
    """Where an announced file goes."""
    return str((await announced(client, data))["upload"]["url"])


async def announced(client: httpx.AsyncClient, data: bytes) -> dict[str, Any]:
    body = {"filename": "a.png", "bytes": len(data), "purpose": "vision"}
    made: dict[str, Any] = (await client.post("/v1/files", json=body)).json()
    return made


async def test_an_announced_file_goes_where_it_was_told_to_go(gateway: Gateway, client: httpx.AsyncClient) -> None:
    made = await announced(client, PNG)
    url = made["upload"]["url"]
    assert (url.startswith(f"{gateway.url}/v1/uploads/"), made["upload"]["method"]) == (True, "PUT")
    async with httpx.AsyncClient() as stranger:
        first = await stranger.put(url, content=PNG)
        again = await stranger.put(url, content=PNG)  # its answer may have been lost
    assert (first.status_code, first.json()["status"], first.json()["id"]) == (200, "processed", made["id"])
    assert (again.status_code, again.json()) == (200, first.json())
    assert (await client.get(f"/v1/files/{made['id']}/content")).content == PNG


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (PNG + b"!", 400, "media_too_large"),
        (PNG[:-1], 400, "media_unreadable"),
        (b"<html>" + bytes(len(PNG) - 6), 400, "media_type_unsupported"),
        (bytes(200_000), 413, "request_too_large"),
    ],
)
async def test_other_bytes_than_announced_are_refused_and_the_right_ones_may_still_come(
    client: httpx.AsyncClient, sent: bytes, status: int, code: str, chunked: bool
) -> None:
    made = await announced(client, PNG)
    url = made["upload"]["url"]
    refused = await client.put(url, content=chunks(sent) if chunked else sent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert (await client.put(url, content=PNG)).status_code == 200


async def test_bytes_that_are_in_use_cannot_be_exchanged(client: httpx.AsyncClient) -> None:
    made = await announced(client, PNG)
    url = made["upload"]["url"]
    assert (await client.put(url, content=PNG)).status_code == 200
    other = PNG[:-1] + bytes([PNG[-1] ^ 1])
    refused = await client.put(url, content=other)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "media_unreadable")
    assert (await client.get(f"/v1/files/{made['id']}/content")).content == PNG


async def test_a_file_that_was_deleted_takes_no_bytes(client: httpx.AsyncClient) -> None:
    made = await announced(client, WAV)
    assert (await client.delete(f"/v1/files/{made['id']}")).status_code == 200
    refused = await client.put(made["upload"]["url"], content=WAV)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "file_not_found")
