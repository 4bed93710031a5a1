"""HTTP/1 on the wire: the bytes that real clients send, and hostile ones."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from gateway.http_protocol import WireLimits
from tests.pipeline.conftest import Gateway, listening
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


@pytest.fixture
async def hasty() -> AsyncIterator[Gateway]:
    """A gateway that does not wait long for anybody."""
    gateway = Gateway()
    gateway.wire = WireLimits(head_s=0.3, idle_s=0.3, body_s=0.6, form_s=1.2)
    async with listening(gateway) as one:
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


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"x: " + b"a" * (1 << 20),
        b"GET /" + b"a" * (1 << 20),
        get(b"/healthz", *[b"x: " + b"a" * 1_000] * 100),
        get(b"/healthz", *[b"x: 1"] * 200),
        chunked(b"{}", trailers=b"x: " + b"a" * (1 << 20)),
        chunked(b"{}").replace(b"2\r\n", b"2;x=" + b"a" * (1 << 20) + b"\r\n"),
    ],
    ids=["one field", "target", "bytes of many", "many", "trailer", "chunk extension"],
)  # fmt: skip
async def test_a_head_without_end_is_a_431(wire: Wire, head: bytes) -> None:
    sending = asyncio.create_task(wire.send(*(head[at : at + 30_000] for at in range(0, len(head), 30_000))))
    answer = await wire.answer()
    assert (answer.status, answer.code) == (431, "headers_too_large")
    assert await wire.closed() == b""
    sending.cancel()


async def test_a_head_may_be_as_long_as_its_limit_says(wire: Wire) -> None:
    limits = WireLimits()
    await wire.send(get(b"/healthz", b"x: " + b"a" * (limits.head_bytes - 100)))
    assert (await wire.answer()).status == 200
    await wire.send(get(b"/healthz", *[b"x: 1"] * (limits.head_fields - 1)))
    assert (await wire.answer()).status == 200


async def test_a_large_body_in_small_pieces_is_no_large_head(wire: Wire) -> None:
    await wire.send(chunked(*[b" " * 100] * 3_000, CHAT))
    assert (await wire.answer()).status == 200


async def test_trailers_are_no_headers_of_this_request_or_the_next(wire: Wire) -> None:
    trailers = b"x-request-timeout-s: never\r\nx-request-id: a-trailer\r\n"
    await wire.send(chunked(CHAT, trailers=trailers) + get(b"/healthz"))
    for answer in (await wire.answer(), await wire.answer()):
        assert answer.status == 200
        assert answer.headers["x-request-id"] != "a-trailer"


@pytest.mark.parametrize(
    "begun",
    [b"GET /heal", b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: y", b"G"],
)
async def test_a_head_that_is_not_finished_in_time_is_a_408(hasty: Gateway, begun: bytes) -> None:
    async with Wire(hasty) as wire:
        await wire.send(begun)
        answer = await wire.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert await wire.closed() == b""


async def test_a_head_that_drips_is_a_408_too(hasty: Gateway) -> None:
    async with Wire(hasty) as wire:
        dripping = asyncio.create_task(wire.drip(b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 5_000, 1))
        assert (await wire.answer()).status == 408
        dripping.cancel()


async def test_one_who_says_nothing_is_not_waited_for(hasty: Gateway) -> None:
    async with Wire(hasty) as wire:
        assert await wire.closed() == b""


async def test_a_body_that_stops_is_a_408(hasty: Gateway) -> None:
    async with Wire(hasty) as wire:
        await wire.send(post()[:-5])
        answer = await wire.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert await wire.closed() == b""
    await until(lambda: len(hasty.open) == 0)


@pytest.mark.parametrize("framed", [post(b" " * 10_000), chunked(b" " * 9_000).replace(b"0\r\n\r\n", b"")])
async def test_a_body_that_drips_is_a_408(hasty: Gateway, framed: bytes) -> None:
    async with Wire(hasty) as wire:
        dripping = asyncio.create_task(wire.drip(framed, 400))
        answer = await wire.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        dripping.cancel()
    await until(lambda: len(hasty.open) == 0)


async def test_a_form_may_take_longer_and_not_for_ever(hasty: Gateway) -> None:
    form = b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n\x89PNG\r\n\x1a\n" + bytes(8_000)
    request = post(form, b"content-type: multipart/form-data; boundary=x", path=b"/v1/files")
    loop = asyncio.get_running_loop()
    async with Wire(hasty) as wire:
        began_s = loop.time()
        dripping = asyncio.create_task(wire.drip(request, 300))
        answer = await wire.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert loop.time() - began_s > hasty.wire.body_s
        dripping.cancel()
    await until(lambda: hasty.uploads._receiving == 0)
    assert hasty.blobs._objects == {}


async def test_after_an_early_answer_a_body_that_drips_on_is_cut_off(hasty: Gateway) -> None:
    async with Wire(hasty) as wire:
        dripping = asyncio.create_task(wire.drip(post(b" " * 10_000, path=b"/nowhere"), 200))
        assert (await wire.answer()).status == 404
        assert await wire.closed() == b""
        dripping.cancel()


async def test_a_long_answer_is_not_hurried(hasty: Gateway) -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await run.say("Hel")
        await go.wait()
        await run.finish()

    hasty.pool.script = script
    asyncio.get_running_loop().call_later(2 * hasty.wire.form_s, go.set)
    async with Wire(hasty) as wire:
        await wire.send(post(STREAM))
        assert (await wire.answer()).body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("after", [b"garbage\r\n\r\n", b"GET /heal", get(b"/x", host=b""), b"GET /" + b"a" * 90_000])
async def test_what_follows_a_request_does_not_disturb_its_answer(hasty: Gateway, after: bytes) -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await run.say("Hel")
        await go.wait()
        await run.finish()

    hasty.pool.script = script
    async with Wire(hasty) as wire:
        await wire.send(post(STREAM), after)
        asyncio.get_running_loop().call_later(3 * hasty.wire.head_s, go.set)
        assert (await wire.answer()).body.endswith(b"data: [DONE]\n\n")
        await wire.closed()


@pytest.mark.parametrize("after", [b"garbage\r\n\r\n", b"GET /heal", get(b"/healthz"), post() * 3])
async def test_one_who_sends_more_and_goes_away_stops_the_work_too(gateway: Gateway, after: bytes) -> None:
    gateway.pool.script = Run.cancelled
    async with Wire(gateway) as wire:
        await wire.send(post(STREAM), after)
        await until(lambda: len(gateway.pool.runs) == 1)
    await until(lambda: gateway.pool.runs[0].was_cancelled, within_s=1.0)
    await until(lambda: len(gateway.open) == 0)
    assert len(gateway.pool.runs) == 1


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
