"""Messages -> prompt token ids, once per request: the model's own chat template and tokenizer, no model code.

The template runs as transformers runs it (same sandbox, same helpers, same white-space rules), so that a prompt is byte
for byte what the model was trained on. What differs on purpose: a control token that a user spells out stays text.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from infra.clock import Clock
from schemas.errors import TriptychError
from schemas.openai_request import (
    AssistantMessage,
    ChatMessage,
    DeveloperMessage,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from topics.tokens import ChatTokenizer

# Above this, tokenising takes longer than a few milliseconds and goes to a thread, so that other streams flow on.
THREAD_FROM_CHARS = 8_000
STAND_IN_DIGITS = 32

_ROLES: dict[type[ChatMessage], str] = {
    SystemMessage: "system",
    DeveloperMessage: "developer",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}


class Renderer:
    """Renders for one model. `variables` are what the template may name: `bos_token` and its like."""

    def __init__(self, template: str, variables: Mapping[str, Any], tokenizer: ChatTokenizer, clock: Clock) -> None:
        self._tokenizer = tokenizer
        self._variables = dict(variables)
        self._knows_developer = "developer" in template
        self._template = _environment(clock).from_string(template)

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    async def render(self, messages: Sequence[ChatMessage], most_tokens: int) -> list[int]:
        """The prompt, with the assistant's turn opened.

        Raises:
            TriptychError: invalid_request, in the template's words, when it refuses the conversation;
                context_length_exceeded when the prompt is so long that counting its tokens would be a waste.
        """
        plain = [self._plain(message) for message in messages]
        size = sum(len(one["content"]) for one in plain)
        if size < THREAD_FROM_CHARS:
            return self._ids(plain, most_tokens)
        return await asyncio.to_thread(self._ids, plain, most_tokens)

    def _plain(self, message: ChatMessage) -> dict[str, str]:
        """A message as templates know it."""
        role = _ROLES[type(message)]
        if role == "developer" and not self._knows_developer:
            role = "system"
        plain = {"role": role, "content": flatten(message)}
        if message.name is not None:
            plain["name"] = message.name
        if isinstance(message, ToolMessage):
            plain["tool_call_id"] = message.tool_call_id
        return plain

    def _ids(self, messages: list[dict[str, str]], most_tokens: int) -> list[int]:
        restore = self._hide_control(messages)
        rendered = self._render(messages)
        if (least := self._tokenizer.least_tokens(rendered)) > most_tokens:
            raise TriptychError(
                "context_length_exceeded",
                f"This model's maximum context length is {most_tokens} tokens. However, your messages hold more than "
                f"{least} tokens. Please reduce the length of the messages.",
                param="messages",
            )
        return self._tokenizer.encode(rendered, restore)

    def _hide_control(self, messages: list[dict[str, str]]) -> dict[str, str]:
        """Put stand-ins where users spell out control tokens; returns what they stand for."""
        stand_ins = _StandIns()
        for message in messages:
            for key, text in message.items():
                if self._tokenizer.find_control(text):
                    message[key] = self._tokenizer.replace_control(text, stand_ins.hide)
        return stand_ins.hidden

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._variables
            )
        except jinja2.TemplateError as error:
            raise TriptychError(
                "invalid_request", f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error


class _StandIns:
    """Unguessable stand-ins for control tokens; digits only, so that templates may trim, upper-case or quote them."""

    def __init__(self) -> None:
        self.hidden: dict[str, str] = {}  # stand-in -> what a user wrote
        self._known: dict[str, str] = {}
        self._secret = str(secrets.randbelow(10**STAND_IN_DIGITS)).zfill(STAND_IN_DIGITS)

    def hide(self, control: str) -> str:
        stand_in = self._known.setdefault(control, f"{self._secret}{len(self._known):06d}")
        self.hidden[stand_in] = control
        return stand_in


def flatten(message: ChatMessage) -> str:
    """The text of a message; of a list of parts, a line each, as vLLM joins them."""
    if isinstance(message.content, str):
        return message.content
    if isinstance(message, AssistantMessage) and message.content is None:
        return message.refusal or ""
    return "\n".join(part.text if isinstance(part, TextPart) else part.refusal for part in message.content or ())


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here it only has to be understood."""

    tags = {"generation"}  # noqa: RUF012  # jinja2's own type of this attribute

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(clock: Clock) -> jinja2.Environment:
    """What chat templates may rely on."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # jinja2's own escapes HTML, which a prompt is not.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form: str) -> str:
        return datetime.fromtimestamp(clock.now(), UTC).astimezone().strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment
