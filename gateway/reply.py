"""Events -> OpenAI's words for them: chunks of a stream, or one body. Pure; the only place that knows both sides."""

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from gateway import errors
from gateway.delivery import Piece, Told
from schemas import codec
from schemas.errors import TriptychError, body_of
from schemas.events import (
    Cancelled,
    Failed,
    Finished,
    FinishReason,
    Made,
    Part,
    Progress,
    Restarted,
    Steered,
    Token,
    TokenLogprob,
    Transcript,
    Usage,
)
from schemas.openai_reply import (
    LOWEST_LOGPROB,
    ChatCompletion,
    ChatCompletionChunk,
    Choice,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionUsage,
    Delta,
    PromptTokensDetails,
    ReplyMessage,
    TokenLogprobs,
    TopLogprob,
)

DONE = b"data: [DONE]\n\n"


class ReplyHead(msgspec.Struct, frozen=True):
    """What all parts of one answer repeat."""

    id: str
    created: int  # unix seconds
    model: str
    system_fingerprint: str | None = None  # OpenAI's name for what runs the model; ours names the engine


class Chunks:
    """The chunks of one streamed answer. Feed it all events, in order."""

    def __init__(self, head: ReplyHead, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        self._begun: set[int] = set()

    def encode(self, events: Iterable[Told]) -> bytes:
        """The lines of the event stream that tell these events; may be empty.

        Raises:
            TriptychError: worker_lost, when a new attempt starts over what the client has seen already.
        """
        return b"".join(line for event in events for line in self._lines(event))

    def _lines(self, event: Told) -> list[bytes]:
        match event:
            case Token():
                return self._token(event)
            case Restarted():
                if self._begun:
                    raise TriptychError("worker_lost", "The worker was lost in mid-stream; please try again.")
                return []
            case Finished():
                return [self._chunk([], usage_of(event.usage)), DONE] if self._include_usage else [DONE]
            case Failed() | Cancelled():
                return [error_line(errors.from_event(event))]
            case Part() | Made() | Progress() | Transcript() | Steered() | Piece():
                return []
            case _:
                assert_never(event)

    def _token(self, event: Token) -> list[bytes]:
        lines = []
        if event.index not in self._begun:
            self._begun.add(event.index)
            lines.append(self._chunk([ChunkChoice(event.index, Delta(role="assistant", content=""))]))
        # A token that ends inside a character has no text yet; its text comes with the next one.
        if event.text or event.logprobs or event.finish_reason:
            delta = Delta(content=event.text) if event.text else Delta()
            choice = ChunkChoice(event.index, delta, logprobs_of(event.logprobs), event.finish_reason)
            lines.append(self._chunk([choice]))
        return lines

    def _chunk(self, choices: list[ChunkChoice], usage: CompletionUsage | None = None) -> bytes:
        head = self._head
        chunk = ChatCompletionChunk(
            id=head.id,
            created=head.created,
            model=head.model,
            choices=choices,
            system_fingerprint=head.system_fingerprint,
            # OpenAI's rule: with include_usage the key is in every chunk, null in all but the last.
            usage=usage if self._include_usage else msgspec.UNSET,
        )
        return b"data: " + codec.to_json(chunk) + b"\n\n"


class Body:
    """The one body of a whole answer. Feed it all events up to the terminal one, then ask for it."""

    def __init__(self, head: ReplyHead, n: int) -> None:
        self._head = head
        self._choices = [_Collected() for _ in range(n)]

    def add(self, events: Iterable[Told]) -> None:
        for event in events:
            if isinstance(event, Token):
                self._choices[event.index].add(event)
            elif isinstance(event, Restarted):
                self._choices = [_Collected() for _ in self._choices]

    def encode(self, usage: Usage) -> bytes:
        head = self._head
        return codec.to_json(
            ChatCompletion(
                id=head.id,
                created=head.created,
                model=head.model,
                choices=[choice.as_choice(index) for index, choice in enumerate(self._choices)],
                usage=usage_of(usage),
                system_fingerprint=head.system_fingerprint,
            )
        )


class _Collected:
    """What one choice has said so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[TokenLogprob] | None = None
        self.finish_reason: FinishReason = "stop"

    def add(self, event: Token) -> None:
        self.texts.append(event.text)
        if event.logprobs is not None:
            self.logprobs = (self.logprobs or []) + event.logprobs
        if event.finish_reason is not None:
            self.finish_reason = event.finish_reason

    def as_choice(self, index: int) -> Choice:
        return Choice(index, ReplyMessage("".join(self.texts)), logprobs_of(self.logprobs), self.finish_reason)


def error_line(error: TriptychError) -> bytes:
    """An error in the middle of a stream, as the SDKs raise it. Nothing follows: not even [DONE]."""
    return b"data: " + codec.to_json(body_of(error)) + b"\n\n"


def usage_of(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=usage.cached),
    )


def logprobs_of(logprobs: Sequence[TokenLogprob] | None) -> ChoiceLogprobs | None:
    if logprobs is None:
        return None
    return ChoiceLogprobs(
        [
            TokenLogprobs(
                one.token,
                max(one.logprob, LOWEST_LOGPROB),
                list(one.raw),
                [TopLogprob(top.token, max(top.logprob, LOWEST_LOGPROB), list(top.raw)) for top in one.top],
            )
            for one in logprobs
        ]
    )
