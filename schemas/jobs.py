"""Jobs: what travels on the work topics.

Evolution rule (tested by golden bytes in tests/unit/schemas/golden): a new field has a default and goes to the end; a
field never changes its type or meaning; a field is never renamed; a new member of a union ships in readers first.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.media import Embeds, ImageOptions, Output, Room, Slot, SpeechOptions
from schemas.ranges import (
    Count,
    Logprobs,
    Name,
    OptionalName,
    OptionalPartName,
    PartName,
    Seed,
    Text,
    TokenId,
    UnixSeconds,
    Weight,
)
from schemas.refs import BlobRef
from schemas.steering import Decision


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every job carries, whatever its stage."""

    request_id: PartName  # unique; names the result stream
    model: Name  # the LLM pool; of media jobs, too, because keys of the result go by it
    deadline_at: UnixSeconds  # unix seconds; past it the job is refused, not run
    created_at: UnixSeconds  # unix seconds, when the request was accepted
    reply_to: OptionalName  # id of the gateway (or intake worker) that follows the result
    streamed: bool = False  # the client sees tokens as they come: an attempt that emitted some cannot start over
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0  # lower runs first, as in vLLM
    tenant: OptionalName = ""  # whose it is; nobody looks at it yet
    traceparent: OptionalName = ""  # W3C trace context
    parent: OptionalPartName = ""  # the request that this one is a part of; cancelled together with it


class JsonObject(msgspec.Struct, frozen=True, tag="json_object"):
    """Constrain the output to any JSON object."""


class JsonSchema(msgspec.Struct, frozen=True, tag="json_schema"):
    """Constrain the output to a JSON schema, given as JSON text."""

    schema: str  # JSON text


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to choose tokens. Names and ranges are OpenAI's; the last ones are vLLM's."""

    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]  # of each answer
    n: Annotated[int, Meta(ge=1, le=128)] = 1  # how many answers
    temperature: Annotated[float, Meta(ge=0, le=1e6)] = 1.0  # 0 = always the likeliest token
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0  # share of the likelihood to choose from
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = 0  # 0 = all
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0  # least likelihood, as a share of the likeliest token's
    seed: Seed | None = None  # None = another answer every time
    stop: Annotated[list[Text], Meta(max_length=1_024)] = []  # texts that end an answer and are left out of it
    presence_penalty: Weight = 0.0  # for a token that the answer has
    frequency_penalty: Weight = 0.0  # for each time that the answer has it
    repetition_penalty: Annotated[float, Meta(gt=0, le=1e6)] = 1.0  # factor, for tokens of prompt and answer; 1 = none
    logit_bias: dict[TokenId, Weight] = {}  # token id -> what is added to its logit
    logprobs: Logprobs | None = None  # None = none; 0 = of the chosen token only; k = and the k likeliest
    constraint: JsonObject | JsonSchema | None = None  # what the answer must be; None = anything
    min_tokens: Count = 0  # no end before so many
    ignore_eos: bool = False  # go on past the model's own end


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where steering sent a job and why. `ticket` names the reservation, which the worker that runs it gives back."""

    ticket: PartName  # names the reservation
    worker: OptionalName  # the one chosen; another one that reads the job runs it all the same
    predicted_tokens: Count = 0  # of the prompt, that the worker's prefix cache was expected to hold
    reason: OptionalName = ""  # of the choice, in a word
    hops: Count = 0  # how often a worker has given it back before


class GenerateJob(msgspec.Struct, frozen=True, tag="generate", omit_defaults=True):
    """Tokens in; text and token ids out. A prompt with `embeds` has placeholder ids where their rows go."""

    head: Head  # what every job carries
    prompt_ids: list[TokenId]  # by the model's own template and tokenizer
    sampling: Sampling  # how to choose tokens
    placement: Placement | None = None  # None = not steered: whoever reads it runs it
    embeds: list[Embeds] = []  # rows of embeddings in the prompt, in order
    outputs: list[Output] = []  # parts of the answer that go to decoders
    decision: Decision | None = None  # for the worker to tell, where somebody else has made it than follows the request


class EncodeJob(msgspec.Struct, frozen=True, tag="encode", omit_defaults=True):
    """Make the artifact of one slot.

    With a `draft` the encoder that completes the set of slots puts them into it and sends it on.
    Without one the artifact itself is the answer: the encoder ends the request.
    """

    head: Head  # what every job carries
    slots: Annotated[list[Slot], Meta(min_length=1, max_length=1_024)]  # all media of the prompt
    number: Count  # which of the slots is meant
    draft: GenerateJob | None = None  # the prompt without its media; None = the artifact is the answer
    room: Room | None = None  # for the answer, once the length of the prompt is known
    language: OptionalName = ""  # of speech, when the client knows it

    @property
    def slot(self) -> Slot:
        return self.slots[self.number]


class DecodeJob(msgspec.Struct, frozen=True, tag="decode", omit_defaults=True):
    """Make pictures of codes, or speech of text."""

    head: Head  # what every job carries
    decoder: Name  # "<served model>/<decoder kind>", as its manifest declares it
    options: ImageOptions | SpeechOptions  # of a picture or of speech
    codes: list[TokenId] = []  # of a picture
    text: Text = ""  # to be spoken


class Offloaded(msgspec.Struct, frozen=True, tag="offloaded"):
    """Stands on the topic for a message over the size limit; the object holds that message's encoded bytes."""

    ref: BlobRef  # where the message is


Job = GenerateJob | EncodeJob | DecodeJob
Message = GenerateJob | EncodeJob | DecodeJob | Offloaded


class DeadLetter(msgspec.Struct, frozen=True, tag="dead", omit_defaults=True):
    """A record nobody could handle, with all that is needed to mend and replay it."""

    reason: str  # empty, failed, invalid, misplaced, undecodable or unreadable
    detail: str  # the same in a sentence
    topic: str  # where the record stood
    partition: int  # of that topic
    offset: int  # in that partition
    at: float  # unix seconds
    key: bytes | None = None  # the record's own
    value: bytes | None = None  # the record's own; None when it would not fit
    value_ref: BlobRef | None = None  # where it is then
    headers: list[tuple[str, bytes]] = []  # the record's own
