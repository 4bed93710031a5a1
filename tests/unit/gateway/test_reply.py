"""Events in, OpenAI's words out: the parts that a whole stream does not show."""

import json

import pytest

from gateway.reply import DONE, Body, Chunks, ReplyHead
from schemas.errors import FAULTS, TriptychError
from schemas.events import Cancelled, Failed, Finished, Restarted, Token, Usage

HEAD = ReplyHead("chatcmpl-1", 1_700_000_000, "tiny")


def token(text: str, index: int = 0) -> Token:
    return Token(1, 1, index, text, [5])


def test_each_choice_begins_with_its_role() -> None:
    lines = Chunks(HEAD, False).encode([token("a", 1), token("b", 0), token("c", 1)]).decode().split("\n\n")[:-1]
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    assert [(one["index"], one["delta"]) for one in choices] == [
        (1, {"role": "assistant", "content": ""}),
        (1, {"content": "a"}),
        (0, {"role": "assistant", "content": ""}),
        (0, {"content": "b"}),
        (1, {"content": "c"}),
    ]


def test_text_cannot_break_out_of_its_line() -> None:
    encoded = Chunks(HEAD, False).encode([token('"}\n\ndata: [DONE]\n\n\u2028')])
    assert encoded.count(b"\n") == 4
    assert encoded.count(b"data: ") == 3  # two chunks, and one that is text
    assert json.loads(encoded.split(b"\n\n")[1].removeprefix(b"data: "))["choices"][0]["delta"]["content"].endswith(
        "\u2028"
    )


def test_a_restart_that_nobody_saw_is_silent_and_one_that_was_seen_is_an_error() -> None:
    chunks = Chunks(HEAD, False)
    assert chunks.encode([Restarted(2, 1)]) == b""
    chunks.encode([token("a")])
    with pytest.raises(TriptychError) as raised:
        chunks.encode([Restarted(3, 3)])
    assert raised.value.code == "worker_lost"


def test_the_usage_key_is_everywhere_or_nowhere() -> None:
    events = [token("a"), Finished(1, 2, Usage(3, 1))]
    without = Chunks(HEAD, False).encode(events)
    assert b"usage" not in without and without.endswith(DONE)
    asked = Chunks(HEAD, True).encode(events)
    assert asked.count(b'"usage":null') == 2
    assert asked.count(b'"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4') == 1
    assert asked.endswith(DONE)


@pytest.mark.parametrize("code", [*FAULTS, "a_code_of_tomorrow"])
def test_every_failure_becomes_an_error_event_with_its_type(code: str) -> None:
    line = Chunks(HEAD, False).encode([Failed(1, 2, code, "why", "messages")])
    error = json.loads(line.removeprefix(b"data: "))["error"]
    known = code if code in FAULTS else "internal"
    assert error == {"message": "why", "type": FAULTS[known].type, "param": "messages", "code": known}  # type: ignore[index]


def test_a_cancelled_request_says_why() -> None:
    line = Chunks(HEAD, False).encode([Cancelled(1, 2, "by the operator")])
    assert b"by the operator" in line


def test_a_body_forgets_a_lost_attempt() -> None:
    body = Body(HEAD, 2)
    body.add([token("lost", 0), token("lost", 1), Restarted(2, 3), token("a", 0), token("b", 1)])
    whole = json.loads(body.encode(Usage(3, 2, 1)))
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["a", "b"]
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 1
