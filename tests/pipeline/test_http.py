"""HTTP/1 on the wire: the bytes that real clients send, and hostile ones."""

import logging
from collections.abc import AsyncIterator

import pytest

from tests.pipeline.conftest import Gateway
from tests.pipeline.scripted import Run
from tests.pipeline.wire import CHAT, HOST, STREAM, Wire, chunked, get, post
from tests.waiting import until

# What `java.net.http.HttpClient` of Java 17 writes with its default version, HTTP_2, to a server without TLS.
JAVA_OFFER = (
    b"Connection: Upgrade, HTTP2-Settings\r\n"
    b"Content-Length: %d\r\n"
    b"Host: 127.0.0.1:8000\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\n"
    b"Upgrade: h2c\r\n"
    b"User-Agent: Java-http-client/17.0.15\r\n"
)
JAVA_POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\n" + JAVA_OFFER % len(CHAT) + b"content-type: application/json\r\n\r\n"
)
JAVA_GET = b"GET /v1/models HTTP/1.1\r\n" + JAVA_OFFER % 0 + b"\r\n"


@pytest.fixture
async def wire(gateway: Gateway) -> AsyncIterator[Wire]:
    async with Wire(gateway) as one:
        yield one


async def test_an_offer_of_http2_with_a_body_as_javas_client_makes_it_is_served_as_http_1_1(wire: Wire) -> None:
    for _ in range(2):
        await wire.send(JAVA_POST, CHAT)
        answer = await wire.answer()
        assert (answer.version, answer.status) == ("HTTP/1.1", 200)
        assert answer.json["choices"][0]["message"]["content"]
    await wire.send(JAVA_GET)
    assert (await wire.answer()).json["object"] == "list"


@pytest.mark.parametrize("cut", [5, 60, len(JAVA_POST) - 1, len(JAVA_POST), len(JAVA_POST) + 7])
async def test_an_offer_is_declined_wherever_its_packets_are_cut(wire: Wire, cut: int) -> None:
    whole = JAVA_POST + CHAT + JAVA_GET
    await wire.send(whole[:cut], whole[cut:])
    assert (await wire.answer()).json["object"] == "chat.completion"
    assert (await wire.answer()).json["object"] == "list"


@pytest.mark.parametrize("offer", [b"websocket", b"h2c", b"TLS/1.0, HTTP/2.0", b"nonsense"])
async def test_whatever_is_offered_a_chunked_body_arrives_whole(wire: Wire, offer: bytes) -> None:
    await wire.send(chunked(CHAT[:7], CHAT[7:], extra=b"connection: upgrade\r\nupgrade: %s\r\n" % offer))
    assert (await wire.answer()).json["object"] == "chat.completion"


async def test_an_offer_hides_neither_close_nor_a_second_length(wire: Wire, gateway: Gateway) -> None:
    await wire.send(post(CHAT, b"connection: close, upgrade", b"upgrade: h2c"))
    assert (await wire.answer()).headers["connection"] == "close"
    assert await wire.closed() == b""
    async with Wire(gateway) as other:
        await other.send(post(CHAT, b"connection: upgrade", b"upgrade: h2c", b"transfer-encoding: chunked"))
        assert (await other.answer()).status == 400
        assert await other.closed() == b""


@pytest.mark.parametrize(
    "request_",
    [
        post(CHAT, b"transfer-encoding: chunked"),
        post(CHAT, b"content-length: 3"),
        post(CHAT, b"transfer-encoding: xchunked"),
        b"POST / HTTP/1.1\n" + HOST + b"\n",
        get(b"/healthz").replace(b"host:", b"host :"),
        get(b"/healthz", b"x: 1\r\n folded: 2"),
        get(b"/healthz", b"x: \0"),
        chunked(b"{}").replace(b"2\r\n{}\r\n", b"2\r\n{}garbage\r\n"),
        chunked(b"{}").replace(b"2\r\n{}\r\n", b"zz\r\n{}\r\n"),
        b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        get(b"/healthz", version=b"2.0"),
        get(b"/healthz", version=b"3.7"),
        get(b"/health\xff"),
        get(b"not a target"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 100,
    ],
)
async def test_what_two_servers_could_read_differently_is_a_400_and_ends_the_connection(
    wire: Wire, gateway: Gateway, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await wire.send(request_ + get(b"/healthz"))
    answer = await wire.answer()
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.headers["connection"] == "close"
    assert answer.headers["x-request-id"]
    assert await wire.closed() == b""
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
    async with Wire(gateway) as other:
        await other.send(get(b"/healthz"))
        assert (await other.answer()).status == 200


@pytest.mark.parametrize("host", [b"", HOST + HOST, b"host: a\r\nhost: b\r\n"])
async def test_a_request_has_one_host(wire: Wire, host: bytes) -> None:
    await wire.send(get(b"/healthz", host=host))
    answer = await wire.answer()
    assert (answer.status, answer.code, answer.json["error"]["param"]) == (400, "invalid_request", "host")


async def test_a_tunnel_is_not_dug(wire: Wire) -> None:
    await wire.send(b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n")
    answer = await wire.answer()
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert await wire.closed() == b""


async def test_http_1_0_gets_a_stream_that_ends_with_the_connection(wire: Wire) -> None:
    await wire.send(post(STREAM, version=b"1.0"))
    answer = await wire.answer()
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    assert "transfer-encoding" not in answer.headers
    assert answer.body.startswith(b"data: {")
    assert answer.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("connection", [b"x: y", b"connection: keep-alive"])
async def test_http_1_0_gets_a_whole_answer_by_its_length_and_needs_no_host(wire: Wire, connection: bytes) -> None:
    await wire.send(get(b"/v1/models", connection, version=b"1.0", host=b""))
    answer = await wire.answer()
    assert (answer.status, answer.json["object"]) == (200, "list")
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert await wire.closed() == b""


async def test_http_1_0_is_not_told_to_continue(wire: Wire) -> None:
    await wire.send(post(CHAT, b"expect: 100-continue", version=b"1.0"))
    assert (await wire.answer()).status == 200


async def test_http_1_0_that_goes_away_stops_its_work(wire: Wire, gateway: Gateway) -> None:
    gateway.pool.script = Run.cancelled
    async with Wire(gateway) as leaving:
        await leaving.send(post(STREAM, version=b"1.0"))
        await until(lambda: len(gateway.pool.runs) == 1)
    await until(lambda: gateway.pool.runs[0].was_cancelled, within_s=1.0)


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz", b"/v1/models", b"/v1/models/tiny", b"/metrics", b"/docs"])
async def test_head_is_get_without_the_body(wire: Wire, path: bytes) -> None:
    await wire.send(get(path))
    whole = await wire.answer()
    await wire.send(get(path, method=b"HEAD") + get(b"/healthz"))
    head = await wire.answer(bodiless=True)
    same = ("content-type", "content-length") if path != b"/metrics" else ("content-type",)
    assert (head.status, [head.headers[one] for one in same]) == (200, [whole.headers[one] for one in same])
    assert (await wire.answer()).json == {"status": "alive"}


async def test_head_of_what_cannot_be_got_says_so(wire: Wire) -> None:
    await wire.send(get(b"/v1/chat/completions", method=b"HEAD"), get(b"/nowhere", method=b"HEAD"), get(b"/healthz"))
    assert (await wire.answer(bodiless=True)).status == 405
    assert (await wire.answer(bodiless=True)).status == 404
    assert (await wire.answer()).status == 200


async def test_head_of_a_files_content_reads_nothing_of_it(wire: Wire, gateway: Gateway) -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(50_000)
    made = await gateway.client().files.create(file=("a.png", content), purpose="vision")
    await wire.send(get(f"/v1/files/{made.id}/content".encode(), method=b"HEAD"), get(b"/healthz"))
    head = await wire.answer(bodiless=True)
    assert (head.status, head.headers["content-length"]) == (200, str(len(content)))
    assert (await wire.answer()).status == 200


async def test_pipelined_requests_are_answered_in_their_order(wire: Wire) -> None:
    await wire.send(post() + get(b"/healthz") + post(STREAM) + get(b"/nowhere"))
    assert (await wire.answer()).json["object"] == "chat.completion"
    assert (await wire.answer()).json == {"status": "alive"}
    assert (await wire.answer()).body.endswith(b"[DONE]\n\n")
    assert (await wire.answer()).status == 404


async def test_a_body_is_asked_for_before_it_is_sent(wire: Wire) -> None:
    whole = post(CHAT, b"expect: 100-continue")
    await wire.send(whole[: -len(CHAT)])
    assert (await wire.answer(bodiless=True)).status == 100
    await wire.send(CHAT)
    assert (await wire.answer()).status == 200


async def test_a_body_that_was_refused_before_it_was_sent_is_not_waited_for(wire: Wire) -> None:
    await wire.send(post(b"", b"expect: 100-continue").replace(b"content-length: 0", b"content-length: 999999999"))
    answer = await wire.answer()
    assert (answer.status, answer.code, answer.headers["connection"]) == (413, "request_too_large", "close")
    assert await wire.closed() == b""
