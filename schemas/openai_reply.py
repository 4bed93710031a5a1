"""What clients get: OpenAI's chat completion, its chunks, and the list of models.

Keys that OpenAI sends as null are sent as null; only a chunk's `usage` is left out when nobody asked for it.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from schemas.events import FinishReason

# JSON has no minus infinity; this is what OpenAI sends for "outside every likelihood".
LOWEST_LOGPROB = -9999.0


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprobs(msgspec.Struct, frozen=True):
    """One position: the chosen token and the likeliest ones. `bytes` joins up where a character spans tokens."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprobs]
    refusal: None = None


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0  # of the prompt, found in the prefix cache
    audio_tokens: int = 0


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class CompletionUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()


class ReplyMessage(msgspec.Struct, frozen=True):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class Choice(msgspec.Struct, frozen=True):
    index: int
    message: ReplyMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int  # unix seconds
    model: str
    choices: list[Choice]
    usage: CompletionUsage
    service_tier: Literal["default"] = "default"
    system_fingerprint: str | None = None


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: Literal["assistant"] | None = None  # in the first chunk of a choice
    content: str | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One `data:` line of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int  # unix seconds, the same in all chunks
    model: str
    choices: list[ChunkChoice]  # empty in the chunk that carries the usage
    service_tier: Literal["default"] = "default"
    system_fingerprint: str | None = None
    usage: CompletionUsage | UnsetType | None = UNSET


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A served model. Beyond OpenAI's fields: how much fits into it, under vLLM's name for that."""

    id: str
    object: Literal["model"] = "model"
    created: int  # unix seconds
    owned_by: str
    max_model_len: int  # tokens, prompt and answer together


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]
