"""OpenAI's speech and transcription: requests, bodies, events of their streams.

A field is honoured, or refused by name (`UNSUPPORTED`): none is dropped in silence.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from schemas.openai_request import Voice, VoiceId

SPEECH_UNSUPPORTED = ("instructions",)
TRANSCRIPTION_UNSUPPORTED = (
    "prompt",
    "include",
    "chunking_strategy",
    "keywords",
    "languages",
    "known_speaker_names",
    "known_speaker_references",
)


class SpeechRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/audio/speech`. wav and flac are sent when complete, the others sentence by sentence."""

    model: str
    input: Annotated[str, Meta(min_length=1, max_length=4_096)]
    voice: Voice
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None = None  # mp3
    speed: Annotated[float, Meta(ge=0.25, le=4)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    instructions: Any = None

    @property
    def voice_name(self) -> str:
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice


class SpeechDelta(msgspec.Struct, frozen=True, tag_field="type", tag="speech.audio.delta"):
    audio: str  # base64


class SpeechUsage(msgspec.Struct, frozen=True):
    input_tokens: int = 0  # speech is made of text, not of tokens
    output_tokens: int = 0
    total_tokens: int = 0


class SpeechDone(msgspec.Struct, frozen=True, tag_field="type", tag="speech.audio.done"):
    usage: SpeechUsage = SpeechUsage()


class TranscriptionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of `POST /v1/audio/transcriptions`, beside its `file`."""

    model: str
    language: Annotated[str, Meta(pattern="^[a-z]{2,3}$")] | None = None  # ISO 639
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] | None = None  # json
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None  # only 0: what is heard is always the likeliest
    timestamp_granularities: Annotated[list[Literal["word", "segment"]], Meta(max_length=2)] | None = None
    prompt: Any = None
    include: Any = None
    chunking_strategy: Any = None
    keywords: Any = None
    languages: Any = None
    known_speaker_names: Any = None
    known_speaker_references: Any = None


class DurationUsage(msgspec.Struct, frozen=True):
    seconds: float
    type: Literal["duration"] = "duration"


class Transcription(msgspec.Struct, frozen=True):
    text: str
    usage: DurationUsage


class TranscriptionSegment(msgspec.Struct, frozen=True):
    """What the encoder does not tell is null."""

    id: int
    start: float  # seconds
    end: float
    text: str
    seek: int | None = None
    tokens: list[int] | None = None
    temperature: float | None = None
    avg_logprob: float | None = None
    compression_ratio: float | None = None
    no_speech_prob: float | None = None


class TranscriptionVerbose(msgspec.Struct, frozen=True):
    duration: float  # seconds
    language: str  # ISO 639
    text: str
    segments: list[TranscriptionSegment]
    usage: DurationUsage
    task: Literal["transcribe"] = "transcribe"


class TranscriptDelta(msgspec.Struct, frozen=True, tag_field="type", tag="transcript.text.delta"):
    delta: str


class TranscriptDone(msgspec.Struct, frozen=True, tag_field="type", tag="transcript.text.done"):
    text: str
