"""Jobs: what travels on the work topics.

Evolution rule (tested by golden bytes in tests/unit/schemas/golden): a new field has a default and goes to the end; a
field never changes its type or meaning; a field is never renamed; a new member of a union ships in readers first.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.media import Embeds, ImageOptions, Output, Room, Slot, SpeechOptions
from schemas.refs import BlobRef


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every job carries, whatever its stage."""

    request_id: str
    model: str
    deadline_at: float  # unix seconds; past it the job is refused, not run
    created_at: float  # unix seconds, when the request was accepted
    reply_to: str  # id of the gateway (or intake worker) that follows the result
    streamed: bool = False  # the client sees tokens as they come: an attempt that emitted some cannot start over
    priority: int = 0  # lower runs first, as in vLLM
    tenant: str = ""
    traceparent: str = ""  # W3C trace context
    parent: str = ""  # the request that this one is a part of; cancelled together with it


class JsonObject(msgspec.Struct, frozen=True, tag="json_object"):
    """Constrain the output to any JSON object."""


class JsonSchema(msgspec.Struct, frozen=True, tag="json_schema"):
    """Constrain the output to a JSON schema, given as JSON text."""

    schema: str


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to choose tokens. Names and ranges are OpenAI's; the last ones are vLLM's."""

    max_tokens: Annotated[int, Meta(ge=1)]
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 = all
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] = []
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None  # None = none; 0 = of the chosen token only; k = and the k likeliest
    constraint: JsonObject | JsonSchema | None = None
    min_tokens: int = 0
    ignore_eos: bool = False


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where steering sent a job and why. `ticket` names the reservation, which the worker that runs it gives back."""

    ticket: str
    worker: str
    predicted_tokens: int = 0  # of the prompt, that the worker's prefix cache was expected to hold
    reason: str = ""
    hops: int = 0  # how often a worker has given it back before


class GenerateJob(msgspec.Struct, frozen=True, tag="generate", omit_defaults=True):
    """Tokens in; text and token ids out. A prompt with `embeds` has placeholder ids where their rows go."""

    head: Head
    prompt_ids: list[int]
    sampling: Sampling
    placement: Placement | None = None
    embeds: list[Embeds] = []
    outputs: list[Output] = []


class EncodeJob(msgspec.Struct, frozen=True, tag="encode", omit_defaults=True):
    """Make the artifact of one slot.

    With a `draft` the encoder that completes the set of slots puts them into it and sends it on (topics/join.py).
    Without one the artifact itself is the answer: the encoder ends the request.
    """

    head: Head
    slots: list[Slot]
    number: int  # which of the slots is meant
    draft: GenerateJob | None = None
    room: Room | None = None
    language: str = ""  # of speech, when the client knows it

    @property
    def slot(self) -> Slot:
        return self.slots[self.number]


class DecodeJob(msgspec.Struct, frozen=True, tag="decode", omit_defaults=True):
    """Make pictures of codes, or speech of text. `decoder` as in media.Output."""

    head: Head
    decoder: str
    options: ImageOptions | SpeechOptions
    codes: list[int] = []
    text: str = ""


class Offloaded(msgspec.Struct, frozen=True, tag="offloaded"):
    """Stands on the topic for a message over the size limit; the object holds that message's encoded bytes."""

    ref: BlobRef


Job = GenerateJob | EncodeJob | DecodeJob
Message = GenerateJob | EncodeJob | DecodeJob | Offloaded


class DeadLetter(msgspec.Struct, frozen=True, tag="dead", omit_defaults=True):
    """A record nobody could handle, with all that is needed to mend and replay it."""

    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    at: float  # unix seconds
    key: bytes | None = None
    value: bytes | None = None  # the raw bytes, or ...
    value_ref: BlobRef | None = None  # ... where they are, when they would not fit
    headers: list[tuple[str, bytes]] = []
