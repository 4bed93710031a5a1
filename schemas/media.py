"""Media on its way through the pipeline: what goes in, what an encoder makes of it, what a decoder is asked for.

Only keys of the object store travel; the one exception is text, which is small.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.ranges import Count, Digest, Label, Name, ObjectKey, OptionalName, OptionalTokenId, Seed
from schemas.refs import BlobRef

MediaKind = Literal["image", "audio", "video"]
EncoderKind = Literal["vision", "audio"]  # the pools; of a video, the frames go to the one and the sound to the other
DecoderKind = Literal["image", "audio"]
ArtifactKind = Literal["embeddings", "token_ids", "text"]


class Slot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A media item that a prompt waits for.

    `offset` counts in the draft's `prompt_ids`: what the encoder makes of the item goes in before that token; slots
    are in the order of their offsets. `encoder` is "<served model>/<encoder kind>", as its manifest declares it.
    """

    offset: Count  # where in the draft's prompt it goes in
    kind: MediaKind  # what the client sent
    pool: EncoderKind  # who encodes it; a video has a slot for each
    encoder: Name  # "<served model>/<encoder kind>"
    source: BlobRef  # the medium itself
    artifact: ObjectKey  # of what the encoder makes of it: artifacts/<encoder fingerprint>/<sha256>.safetensors
    param: Label  # where the client put it, for errors: "messages[0].content[1]"


class Room(msgspec.Struct, frozen=True, omit_defaults=True):
    """What decides how long an answer may be, once the length of the prompt is known."""

    context_tokens: Count  # of the model
    asked_tokens: Count | None = None  # what the client allows; None = as many as there is room for
    min_tokens: Count = 0  # what the client asks for at least
    asked_as: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"  # what the client calls `asked_tokens`


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of speech: seconds from the start, and its words."""

    start_s: float
    end_s: float
    text: str


class Artifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an encoder made of one media item, without the rows of embeddings, which stay in the object store.

    The metadata of the safetensors object holds exactly this, as JSON under the key "triptych".
    """

    kind: ArtifactKind
    encoder: str  # fingerprint
    source: str  # digest of the media's bytes
    rows: int = 0  # embeddings: [rows, width] of dtype, the tensor "rows"
    width: int = 0
    dtype: str = ""
    token_ids: list[int] = []
    text: str = ""
    segments: list[Segment] = []  # of speech
    language: str = ""  # ISO 639-1, of speech
    duration_s: float = 0.0  # of sound and video


class Embeds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of an artifact in an assembled prompt, in the place of the placeholder ids at [offset, offset + length)."""

    offset: Count  # in the prompt
    length: Count  # rows, and placeholder ids
    artifact: ObjectKey  # object key
    digest: Digest  # of encoder and source: what block keys take for the content


class ImageOptions(msgspec.Struct, frozen=True, tag="image", omit_defaults=True):
    """How a picture is drawn and stored."""

    format: Literal["png", "jpeg", "webp"] = "png"  # of the file
    width: Annotated[int, Meta(ge=8, le=2048)] = 256  # pixels
    height: Annotated[int, Meta(ge=8, le=2048)] = 256  # pixels
    steps: Annotated[int, Meta(ge=1, le=200)] = 25  # of diffusion
    guidance: Annotated[float, Meta(ge=0, le=30)] = 2.0  # how closely it keeps to what was asked
    seed: Seed | None = None  # None = another picture every time
    quality: Annotated[int, Meta(ge=1, le=100)] = 90  # of jpeg and webp


AudioFormat = Literal["wav", "mp3", "flac", "opus", "aac", "pcm16"]
PCM16_RATE_HZ = 24_000


class SpeechOptions(msgspec.Struct, frozen=True, tag="speech", omit_defaults=True):
    """How text is spoken and stored. pcm16 is 24 kHz, mono, little endian, without a header, as OpenAI streams it."""

    voice: OptionalName = ""  # empty = the decoder's first
    format: AudioFormat = "wav"  # of the file
    speed: Annotated[float, Meta(ge=0.25, le=4)] = 1.0  # 1 = as the voice speaks by itself
    chunked: bool = False  # one Made event per sentence, instead of one for all


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """Part of a routing slip: what of an LLM's answer goes to which decoder, while the answer is generated.

    Image: each run of token ids from `begin` to `end`; the ids between them, less `first`, are the picture's codes.
    Speech: the text of the answer.
    """

    decoder: Name  # "<served model>/<decoder kind>", as its manifest declares it
    options: ImageOptions | SpeechOptions  # of a picture or of speech
    begin: OptionalTokenId = -1  # token id that opens a run of codes; -1 = none
    end: OptionalTokenId = -1  # token id that closes it
    first: OptionalTokenId = -1  # the codes are the ids [first, last]
    last: OptionalTokenId = -1  # see `first`
