"""How much a gateway takes in before it has looked into a request, over real connections."""

import asyncio
import json
from collections.abc import AsyncIterator

import openai
import pytest

from tests.pipeline.conftest import MODEL, Gateway, listening
from tests.pipeline.scripted import Run, hello
from tests.pipeline.wire import CHAT, HOST, Wire, chunked, post
from tests.waiting import until

MIB = 1 << 20
# Valid, and large only on the wire.
LARGE = CHAT + b" " * (2 * MIB - len(CHAT))


@pytest.fixture
async def narrow() -> AsyncIterator[Gateway]:
    """Room for one large body, and for small ones beside it."""
    async with listening(Gateway(max_body_bytes=3 * MIB, room_bytes=9 * MIB // 2)) as one:
        yield one


async def test_a_place_is_taken_before_the_body_is_read() -> None:
    async with listening(Gateway(max_open=1)) as gateway, Wire(gateway) as slow, Wire(gateway) as other:
        await slow.send(post()[:-1])
        await until(lambda: len(gateway.open) == 1)
        await other.send(post(CHAT, b"expect: 100-continue")[: -len(CHAT)])
        refused = await other.answer()  # and not a 100
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "rate_limited", "1")
        await slow.send(CHAT[-1:])
        assert (await slow.answer()).status == 200
        await until(lambda: len(gateway.open) == 0)


@pytest.mark.parametrize("framed", [post(LARGE), chunked(LARGE[:MIB], LARGE[MIB:])], ids=["length", "chunks"])
async def test_bodies_that_do_not_fit_are_told_to_come_back_and_small_ones_are_served(
    narrow: Gateway, framed: bytes
) -> None:
    narrow.pool.script = Run.cancelled
    async with Wire(narrow) as first, Wire(narrow) as second:
        await first.send(framed)
        await until(lambda: len(narrow.pool.runs) == 1)
        await second.send(framed)
        refused = await second.answer()
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "rate_limited", "1")
        with pytest.raises(openai.RateLimitError, match="too large to take in another"):
            await narrow.client().chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "zq" * MIB}]
            )
        narrow.pool.script = hello
        await narrow.client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    await until(lambda: (len(narrow.open), narrow.room.held_bytes) == (0, 0))
    async with Wire(narrow) as third:
        await third.send(framed)
        assert (await third.answer()).status == 200


async def test_what_is_only_announced_is_counted(narrow: Gateway) -> None:
    async with Wire(narrow) as first, Wire(narrow) as second:
        await first.send(post(LARGE)[:300])
        await until(lambda: narrow.room.held_bytes == len(LARGE))
        await second.send(post(LARGE)[:300])
        assert (await second.answer()).status == 429
    await until(lambda: narrow.room.held_bytes == 0)


async def test_a_body_over_the_limit_is_a_413_and_not_told_to_come_back(narrow: Gateway) -> None:
    for framed in (post(b" " * (3 * MIB + 1)), chunked(*[b" " * MIB] * 4)):
        async with Wire(narrow) as wire:
            sending = asyncio.create_task(wire.send(framed))
            answer = await wire.answer()
            assert (answer.status, answer.code) == (413, "request_too_large")
            assert "retry-after" not in answer.headers
            sending.cancel()


async def test_a_form_is_not_read_where_json_is_expected(narrow: Gateway) -> None:
    async with Wire(narrow) as wire:
        head = b"POST /v1/chat/completions HTTP/1.1\r\n%scontent-type: multipart/form-data; boundary=x\r\n" % HOST
        await wire.send(head + b"expect: 100-continue\r\ncontent-length: 1000000\r\n\r\n")
        answer = await wire.answer()  # and not a 100
        assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def test_an_upload_is_announced_in_few_words(narrow: Gateway) -> None:
    announcement = json.dumps({"filename": "a" * 20_000, "bytes": 1, "purpose": "vision"}).encode()
    json_type = b"content-type: application/json"
    for framed in (
        post(announcement, json_type, path=b"/v1/files"),
        chunked(announcement, extra=json_type + b"\r\n").replace(b"/v1/chat/completions", b"/v1/files"),
    ):
        async with Wire(narrow) as wire:
            await wire.send(framed)
            answer = await wire.answer()
            assert (answer.status, answer.code) == (413, "request_too_large")
