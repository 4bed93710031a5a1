"""How much of a request, and how slowly, a gateway bears to read; and that no answer under way is disturbed by it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.http_heads import WireLimits
from tests.pipeline.conftest import Gateway, listening
from tests.pipeline.scripted import Run
from tests.pipeline.wire import CHAT, HOST, STREAM, Wire, chunked, get, post
from tests.waiting import until


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
