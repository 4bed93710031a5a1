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


class ReplyText(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ReplyUrl(msgspec.Struct, frozen=True):
    url: str  # presigned, or data:


class ReplyImage(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: ReplyUrl


class ReplyAudio(msgspec.Struct, frozen=True):
    """A spoken answer. The id stands for it in a later turn, until it expires."""

    id: str
    data: str  # base64, in the format that was asked for
    expires_at: int  # unix seconds
    transcript: str


class ReplyMessage(msgspec.Struct, frozen=True):
    """`content` is a list when the answer has pictures (our addition), and null when it is spoken."""

    content: str | list[ReplyText | ReplyImage] | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    audio: ReplyAudio | UnsetType = UNSET


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


class AudioDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some more of a spoken answer. The SDKs add deltas up, so id and expires_at are sent once each."""

    id: str | None = None
    data: str | None = None  # base64 of pcm16, always of whole groups of three bytes
    transcript: str | None = None
    expires_at: int | None = None  # unix seconds


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """`content` is a list for a picture (our addition)."""

    role: Literal["assistant"] | None = None  # in the first chunk of a choice
    content: str | list[ReplyImage] | None = None
    audio: AudioDelta | None = None


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
    """A served model. Beyond OpenAI's fields: how much fits into it, under vLLM's name for that, and what it can do."""

    id: str
    object: Literal["model"] = "model"
    created: int  # unix seconds
    owned_by: str
    max_model_len: int  # tokens, prompt and answer together
    capabilities: list[str]
    handoff: Literal["text"] | None = None  # text: media reach the LLM, and leave it, as text; null: as embeddings
    voices: list[str] = []  # of its speech; the first one is the default


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]
