"""`triptych chat`: a conversation in the terminal. Ctrl-C stops the answer, not the chat."""

import readline  # noqa: F401  # gives input() line editing and history
from collections.abc import Generator
from contextlib import closing
from typing import Literal

import msgspec
from rich.console import Console

from cli.errors import CommandFailed
from cli.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from schemas.errors import ErrorDetail

HELP = "/new begins a new conversation, /exit or Ctrl-D ends; Ctrl-C stops an answer"


class Turn(msgspec.Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class ChatBody(msgspec.Struct, frozen=True, omit_defaults=True):
    model: str
    messages: list[Turn]
    stream: bool
    max_tokens: int | None = None


class Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class Choice(msgspec.Struct, frozen=True):
    delta: Delta = Delta()
    finish_reason: str | None = None


class Chunk(msgspec.Struct, frozen=True):
    """What this command reads of a stream's events: text, or the error that ends it."""

    choices: list[Choice] = []
    error: ErrorDetail | None = None


class ModelId(msgspec.Struct, frozen=True):
    id: str


class ModelIds(msgspec.Struct, frozen=True):
    data: list[ModelId]


class ChatOptions(msgspec.Struct, frozen=True):
    model: str
    system: str
    max_tokens: int | None


def first_model(client: GatewayClient) -> str:
    """The model to talk to when none is named.

    Raises:
        CommandFailed: the gateway serves none.
    """
    _, body = client.get("/v1/models")
    served = msgspec.json.decode(body, type=ModelIds).data
    if not served:
        raise CommandFailed(f"the gateway at {client.url} serves no model")
    return served[0].id


class Conversation:
    """The turns so far. A turn that failed leaves no trace, so that the next one can be asked as if it had not been."""

    def __init__(self, client: GatewayClient, options: ChatOptions) -> None:
        self._client = client
        self._options = options
        self._turns: list[Turn] = []
        self.clear()

    def clear(self) -> None:
        self._turns = [Turn("system", self._options.system)] if self._options.system else []

    def ask(self, question: str) -> Generator[str]:
        """The answer, piece by piece. Closing the iterator stops the answer; what was said so far is kept.

        Raises:
            CommandFailed: the gateway refuses or cannot be reached; the question is taken back.
        """
        self._turns.append(Turn("user", question))
        said: list[str] = []
        try:
            for text in self._stream():
                said.append(text)
                yield text
        except CommandFailed:
            self._turns.pop()
            raise
        except (GeneratorExit, KeyboardInterrupt):  # stopped between two pieces, or while waiting for one
            self._answered(said)
            raise
        self._answered(said)

    def _answered(self, said: list[str]) -> None:
        if said:
            self._turns.append(Turn("assistant", "".join(said)))
        else:
            self._turns.pop()  # no answer at all: two user turns in a row would confuse a template

    def _stream(self) -> Generator[str]:
        body = ChatBody(self._options.model, self._turns, True, self._options.max_tokens)
        with closing(self._client.events("/v1/chat/completions", msgspec.json.encode(body))) as events:
            for data in events:
                chunk = msgspec.json.decode(data, type=Chunk)
                if chunk.error is not None:
                    raise GatewayRefused(chunk.error.message)
                for choice in chunk.choices:
                    if choice.delta.content:
                        yield choice.delta.content


def run(client: GatewayClient, options: ChatOptions, console: Console) -> None:
    """Read questions and write answers until the input ends."""
    conversation = Conversation(client, options)
    console.print(f"{options.model} at {client.url}. {HELP}", style="dim", highlight=False)
    while True:
        try:
            question = input("> ").strip()
        except KeyboardInterrupt:
            console.print()
            continue
        except EOFError:
            console.print()
            return
        match question:
            case "":
                continue
            case "/exit":
                return
            case "/new":
                conversation.clear()
            case _:
                _answer(conversation, question, console)


def _answer(conversation: Conversation, question: str, console: Console) -> None:
    with closing(conversation.ask(question)) as answer:
        try:
            for text in answer:
                console.out(text, end="", highlight=False)
        except KeyboardInterrupt:
            console.print(" [stopped]", style="dim", markup=False, end="")
        except (GatewayRefused, GatewayUnreachable) as error:
            console.print(str(error), style="red", markup=False, end="")
    console.print()
