"""How an answer is written when writing itself goes wrong."""

import asyncio
import json

import pytest

from gateway.answer import Streamed
from gateway.reply import Chunks, ReplyHead
from schemas.errors import TriptychError
from schemas.events import Failed, Finished, Token, Usage
from tests.unit.gateway.client import Client, followed

HEAD = ReplyHead("chatcmpl-1", 1_700_000_000, "tiny")


def streamed(client: Client) -> Streamed:
    return Streamed(client.send, Chunks(HEAD, False), lambda: None)


async def test_after_a_write_that_was_broken_off_nothing_follows() -> None:
    client = Client()
    answer = streamed(client)
    subscription = followed(Token(1, 1, 0, "seen", [5]))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await answer.pass_on(subscription)
    client.stuck = True
    subscription.feed([Token(1, 2, 0, "lost", [6])])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await answer.pass_on(subscription)
    client.stuck = False
    subscription.feed([Token(1, 3, 0, "after the hole", [7]), Finished(1, 4, Usage(1, 3))])
    await answer.pass_on(subscription)
    await answer.fail(TriptychError("deadline_exceeded", "too late"))
    assert "seen" in client.body
    assert "after the hole" not in client.body
    assert "too late" not in client.body
    assert client.written[-1]["more_body"] is True


async def test_a_failure_that_comes_first_is_left_to_the_status_line() -> None:
    client = Client()
    answer = streamed(client)
    with pytest.raises(TriptychError, match="why") as raised:
        await answer.pass_on(followed(Failed(1, 1, "overloaded", "why")))
    assert client.written == []
    await answer.fail(raised.value)
    assert client.written[0]["status"] == 503
    assert json.loads(client.body)["error"]["code"] == "overloaded"


async def test_nothing_follows_a_complete_stream() -> None:
    client = Client()
    answer = streamed(client)
    await answer.pass_on(followed(Token(1, 1, 0, "a", [5], "stop"), Finished(1, 2, Usage(1, 1))))
    await answer.fail(TriptychError("internal", "too late"))
    assert client.body.endswith("data: [DONE]\n\n")
    assert client.written[-1]["more_body"] is False
