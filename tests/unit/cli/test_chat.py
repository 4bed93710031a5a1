import io
from collections.abc import Generator

import msgspec
import pytest
from rich.console import Console

from cli.chat import ChatBody, ChatOptions, Conversation, Turn, run
from cli.errors import CommandFailed
from cli.gateway_client import GatewayClient, GatewayUnreachable

OPTIONS = ChatOptions(model="m", system="be brief", max_tokens=5)


class ScriptedClient(GatewayClient):
    """Answers each request with the next list of events; an exception in it is raised there."""

    def __init__(self, *answers: list[bytes | BaseException]) -> None:
        super().__init__("http://nowhere")
        self._answers = list(answers)
        self.asked: list[ChatBody] = []
        self.closed = 0

    def events(self, path: str, body: bytes) -> Generator[bytes]:
        self.asked.append(msgspec.json.decode(body, type=ChatBody))
        try:
            for event in self._answers.pop(0):
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.closed += 1


def piece(text: str) -> bytes:
    return msgspec.json.encode({"choices": [{"index": 0, "delta": {"content": text}}]})


def test_an_answer_comes_in_pieces_and_becomes_part_of_the_next_question() -> None:
    client = ScriptedClient([piece("Hel"), piece("lo"), b'{"choices": [], "usage": {}}'], [piece("again")])
    conversation = Conversation(client, OPTIONS)
    assert list(conversation.ask("hi")) == ["Hel", "lo"]
    assert list(conversation.ask("more")) == ["again"]
    assert client.asked[1] == ChatBody(
        "m",
        [Turn("system", "be brief"), Turn("user", "hi"), Turn("assistant", "Hello"), Turn("user", "more")],
        stream=True,
        max_tokens=5,
    )


def test_a_stopped_answer_closes_the_request_and_keeps_what_was_said() -> None:
    client = ScriptedClient([piece("one"), piece("two")], [piece("x")])
    conversation = Conversation(client, OPTIONS)
    answer = conversation.ask("count")
    assert next(answer) == "one"
    answer.close()
    assert client.closed == 1
    list(conversation.ask("go on"))
    assert client.asked[1].messages[-2] == Turn("assistant", "one")


def test_a_question_that_failed_is_taken_back() -> None:
    client = ScriptedClient([GatewayUnreachable("gone")], [piece("x")])
    conversation = Conversation(client, OPTIONS)
    with pytest.raises(CommandFailed, match="gone"):
        list(conversation.ask("hi"))
    list(conversation.ask("hello?"))
    assert client.asked[1].messages == [Turn("system", "be brief"), Turn("user", "hello?")]


def test_an_error_in_the_stream_is_raised_with_the_gateways_words() -> None:
    error = {"error": {"message": "the engine died", "type": "server_error", "param": None, "code": "engine_died"}}
    conversation = Conversation(ScriptedClient([piece("a"), msgspec.json.encode(error)]), OPTIONS)
    with pytest.raises(CommandFailed, match="the engine died"):
        list(conversation.ask("hi"))


def test_a_new_conversation_keeps_the_system_message_only() -> None:
    client = ScriptedClient([piece("a")], [piece("b")])
    conversation = Conversation(client, OPTIONS)
    list(conversation.ask("hi"))
    conversation.clear()
    list(conversation.ask("hi"))
    assert client.asked[1].messages == [Turn("system", "be brief"), Turn("user", "hi")]


def test_the_chat_goes_on_after_an_answer_that_failed_or_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ScriptedClient([GatewayUnreachable("gone")], [piece("one"), KeyboardInterrupt()], [piece("three")])
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n\nsecond\nthird\n"))
    shown = io.StringIO()
    run(client, OPTIONS, Console(file=shown))
    assert [said in shown.getvalue() for said in ("gone", "one [stopped]", "three")] == [True, True, True]
    questions = [Turn("user", "second"), Turn("assistant", "one"), Turn("user", "third")]
    assert client.asked[2].messages == [Turn("system", "be brief"), *questions]


def test_new_and_exit_are_commands_not_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ScriptedClient([piece("a")], [piece("b")])
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n/new\nsecond\n/exit\nnever asked\n"))
    run(client, OPTIONS, Console(file=io.StringIO()))
    assert [one.messages[-1].content for one in client.asked] == ["first", "second"]
    assert len(client.asked[1].messages) == 2
