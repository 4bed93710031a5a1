"""What clients send: OpenAI's chat completion request, every documented field of it, and the sampling extras of vLLM.

A field is honoured, or it is listed in UNSUPPORTED and refused by name; none is dropped in silence. Explicit null
counts as absent. Types and ranges are checked while decoding; what depends on the model or on other fields is checked
by `gateway/admit.py`. Unlike messages between our own processes, requests refuse fields they do not know.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from schemas.media import AudioFormat
from schemas.openai_parts import Content, TextOnly

# Declared so that they are refused by name. Any: their inner shape is nobody's business until they are honoured.
UNSUPPORTED = (
    "function_call",
    "functions",
    "moderation",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "tools",
    "verbosity",
    "web_search_options",
)

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class SystemMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="system"):
    content: TextOnly
    name: Name | None = None


class DeveloperMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="developer"):
    """OpenAI's newer word for a system message."""

    content: TextOnly
    name: Name | None = None


class UserMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="user"):
    content: Content
    name: Name | None = None


class EarlierAudio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Speech of an earlier answer. Its id says all; the other fields are what SDKs give back with it."""

    id: Annotated[str, Meta(min_length=1, max_length=128)]
    data: str | None = None
    expires_at: int | None = None
    transcript: str | None = None


class AssistantMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="assistant"):
    """History. SDKs give back the whole message they got, so its empty fields are declared too."""

    content: Content | None = None
    name: Name | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: EarlierAudio | None = None  # its transcript stands for it
    tool_calls: Any = None  # refused unless null
    function_call: Any = None  # refused unless null


class ToolMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="tool"):
    content: Content
    tool_call_id: str
    name: Name | None = None


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool | None = None  # one more chunk, before the end, with the usage
    include_obfuscation: bool | None = None  # only false is honoured


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """No constraint."""


class JsonObjectFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class SchemaSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schema is always enforced, so `strict` changes nothing."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"):
    json_schema: SchemaSpec


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat
Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopText = Annotated[str, Meta(min_length=1)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]


class VoiceId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, max_length=64)]


Voice = Annotated[str, Meta(min_length=1, max_length=64)] | VoiceId


class AudioOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an answer is spoken; goes with "audio" in `modalities`. A stream is pcm16."""

    voice: Voice
    format: AudioFormat


class ImageOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How pictures of an answer are drawn and given; our addition, beside OpenAI's `audio`."""

    format: Literal["png", "jpeg", "webp"] | None = None
    size: Annotated[str, Meta(pattern="^([0-9]{1,4}x[0-9]{1,4}|auto)$")] | None = None  # pixels, width x height
    steps: Annotated[int, Meta(ge=1, le=200)] | None = None
    guidance: Annotated[float, Meta(ge=0, le=30)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    quality: Annotated[int, Meta(ge=1, le=100)] | None = None  # of jpeg and webp
    response_format: Literal["url", "b64_json"] | None = None  # b64_json: a data: URL


class ChatRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    model: str
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]

    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None  # the older name of the same
    n: Annotated[int, Meta(ge=1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=4)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None  # token id -> bias
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None

    stream: bool | None = None
    stream_options: StreamOptions | None = None

    # Carried along with the job as record headers, for whoever reads the topic.
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Metadata | None = None

    # Honoured at these values only: there is one tier, and nothing is stored.
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    store: bool | None = None

    # What an answer is made of, and how.
    modalities: Annotated[list[Literal["text", "audio", "image"]], Meta(min_length=1)] | None = None
    audio: AudioOut | None = None
    image: ImageOut | None = None

    # Refused, or honoured where they ask for nothing.
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    function_call: Any = None
    functions: Any = None
    moderation: Any = None
    prediction: Any = None
    prompt_cache_key: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    reasoning_effort: Any = None
    tools: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    # vLLM's extras.
    top_k: Annotated[int, Meta(ge=-1)] | None = None  # -1 and 0 = all
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    ignore_eos: bool | None = None

    @property
    def streamed(self) -> bool:
        return bool(self.stream)

    @property
    def voice(self) -> str:
        """The name of the voice that is asked for; empty when none is."""
        if self.audio is None:
            return ""
        return self.audio.voice.id if isinstance(self.audio.voice, VoiceId) else self.audio.voice

    @property
    def speaks(self) -> bool:
        """The answer is asked for as sound, too."""
        return self.modalities is not None and "audio" in self.modalities

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)
