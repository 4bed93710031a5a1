"""Messages -> prompt token ids, once per request: the model's own chat template and tokenizer, no model code.

The template runs as transformers runs it (same sandbox, same helpers, same white-space rules), so that a prompt is byte
for byte what the model was trained on. What differs on purpose: a control token that a user spells out stays text.

A media item is a stand-in in the text that the template sees. The rendered text is cut there: what an encoder makes of
the item will go between the two pieces.
"""

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import msgspec

from gateway import templates
from infra.clock import Clock
from schemas.errors import TriptychError
from schemas.openai_parts import MediaPart, RefusalPart, TextPart
from schemas.openai_request import (
    AssistantMessage,
    ChatMessage,
    DeveloperMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from topics.tokens import ChatTokenizer

# Above these, rendering and tokenising take longer than a few milliseconds and go to a thread, so that other streams
# flow on. A message costs as much as a hundred characters or so, however short it is.
THREAD_FROM_CHARS = 8_000
THREAD_FROM_MESSAGES = 100
STAND_IN_DIGITS = 32

_ROLES: dict[type[ChatMessage], str] = {
    SystemMessage: "system",
    DeveloperMessage: "developer",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}


class Surround(msgspec.Struct, frozen=True):
    """What the model expects around what an encoder makes of an item; trusted, so it may hold control tokens."""

    before: str
    after: str


class Place(msgspec.Struct, frozen=True):
    """Where in the prompt an item goes in: before the token at `offset`."""

    offset: int
    item: int  # which of the media parts, counted through all messages
    side: int  # which of its surrounds: a video is seen and heard


class Layout(msgspec.Struct, frozen=True):
    """A prompt with places for media, in order."""

    prompt_ids: list[int]
    places: list[Place]


class Renderer:
    """Renders for one model. `variables` are what the template may name: `bos_token` and its like."""

    def __init__(self, template: str, variables: Mapping[str, Any], tokenizer: ChatTokenizer, clock: Clock) -> None:
        self._tokenizer = tokenizer
        self._variables = dict(variables)
        self._knows_developer = "developer" in template
        self._template = templates.environment(clock).from_string(template)

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    async def render(self, messages: Sequence[ChatMessage], most_tokens: int) -> list[int]:
        """The prompt of messages without media; otherwise as `lay_out`."""
        return (await self.lay_out(messages, most_tokens)).prompt_ids

    async def lay_out(
        self, messages: Sequence[ChatMessage], most_tokens: int, items: Sequence[Sequence[Surround]] = ()
    ) -> Layout:
        """The prompt, with the assistant's turn opened. `items`: one entry for each media part, in order.

        Raises:
            TriptychError: invalid_request, in the template's words, when it refuses the conversation;
                context_length_exceeded when the prompt is so long that counting its tokens would be a waste.
        """
        stand_ins = _StandIns()
        if len(messages) < THREAD_FROM_MESSAGES:
            plain = [self._plain(message, stand_ins) for message in messages]
            if sum(len(one["content"]) for one in plain) < THREAD_FROM_CHARS:
                return self._laid_out(plain, stand_ins, most_tokens, items)
        else:
            plain = await asyncio.to_thread(lambda: [self._plain(message, stand_ins) for message in messages])
        return await asyncio.to_thread(self._laid_out, plain, stand_ins, most_tokens, items)

    def _plain(self, message: ChatMessage, stand_ins: "_StandIns") -> dict[str, str]:
        """A message as templates know it."""
        role = _ROLES[type(message)]
        if role == "developer" and not self._knows_developer:
            role = "system"
        plain = {"role": role, "content": _flatten(message, stand_ins)}
        if message.name is not None:
            plain["name"] = message.name
        if isinstance(message, ToolMessage):
            plain["tool_call_id"] = message.tool_call_id
        return plain

    def _laid_out(
        self,
        messages: list[dict[str, str]],
        stand_ins: "_StandIns",
        most_tokens: int,
        items: Sequence[Sequence[Surround]],
    ) -> Layout:
        self._hide_control(messages, stand_ins)
        rendered = self._render(messages)
        if (least := self._tokenizer.least_tokens(rendered)) > most_tokens:
            raise TriptychError(
                "context_length_exceeded",
                f"This model's maximum context length is {most_tokens} tokens. However, your messages hold more than "
                f"{least} tokens. Please reduce the length of the messages.",
                param="messages",
            )
        if not items:
            return Layout(self._tokenizer.encode(rendered, stand_ins.hidden), [])
        return self._cut(rendered, stand_ins, items)

    def _cut(self, rendered: str, stand_ins: "_StandIns", items: Sequence[Sequence[Surround]]) -> Layout:
        ids: list[int] = []
        places: list[Place] = []
        first, *rest = stand_ins.split(rendered)
        text = first
        for item, after_it in zip(map(int, rest[::2]), rest[1::2], strict=True):
            for side, around in enumerate(items[item]):
                ids += self._tokenizer.encode(text + around.before, stand_ins.hidden, begins=not places)
                places.append(Place(len(ids), item, side))
                text = around.after
            text += after_it
        if len({place.item for place in places}) < len(items):
            raise TriptychError(
                "invalid_request",
                "the model's chat template leaves out a media item of these messages",
                param="messages",
            )
        ids += self._tokenizer.encode(text, stand_ins.hidden, begins=not places)
        return Layout(ids, places)

    def _hide_control(self, messages: list[dict[str, str]], stand_ins: "_StandIns") -> None:
        """Put stand-ins where users spell out control tokens."""
        for message in messages:
            for key, text in message.items():
                if self._tokenizer.find_control(text):
                    message[key] = self._tokenizer.replace_control(text, stand_ins.hide)

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
    """Unguessable stand-ins for control tokens and for media; digits only, so that templates may trim, upper-case or
    quote them."""

    def __init__(self) -> None:
        self.hidden: dict[str, str] = {}  # stand-in -> what a user wrote
        self._known: dict[str, str] = {}
        self._secret = ""  # made when it is needed: most prompts spell out no control token
        self._media_secret = ""
        self._media = 0

    def hide(self, control: str) -> str:
        self._secret = self._secret or _secret()
        stand_in = self._known.setdefault(control, f"{self._secret}{len(self._known):06d}")
        self.hidden[stand_in] = control
        return stand_in

    def next_item(self) -> str:
        """For the next media item."""
        self._media_secret = self._media_secret or _secret()
        self._media += 1
        return f"{self._media_secret}{self._media - 1:06d}"

    def split(self, rendered: str) -> list[str]:
        """Text, number of the item, text, number, ..., text."""
        return re.split(f"{self._media_secret}([0-9]{{6}})", rendered)


def _secret() -> str:
    return str(secrets.randbelow(10**STAND_IN_DIGITS)).zfill(STAND_IN_DIGITS)


def _flatten(message: ChatMessage, stand_ins: _StandIns) -> str:
    """The text of a message; of a list of parts, a line each, as vLLM joins them."""
    if isinstance(message.content, str):
        return message.content
    if isinstance(message, AssistantMessage) and message.content is None:
        return message.refusal or ""
    return "\n".join(_part_text(part, stand_ins) for part in message.content or ())


def _part_text(part: TextPart | RefusalPart | MediaPart, stand_ins: _StandIns) -> str:
    match part:
        case TextPart():
            return part.text
        case RefusalPart():
            return part.refusal
        case _:
            return stand_ins.next_item()
