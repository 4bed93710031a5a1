"""A checked, rendered request -> the jobs that answer it. Pure: no clock, no client, no waiting."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from schemas.errors import TriptychError
from schemas.jobs import DecodeJob, EncodeJob, GenerateJob, Head, JsonObject, JsonSchema, Sampling
from schemas.manifest import Manifest, SamplingDefaults
from schemas.media import DecoderKind, ImageOptions, Output, Room, Slot, SpeechOptions
from schemas.openai_request import ChatRequest, ImageOut, JsonObjectFormat, JsonSchemaFormat
from topics.headers import Headers

# What a request and `Sampling` call by one name; left out of the request, the default of `Sampling` holds.
SAME_NAME = (
    "n",
    "temperature",
    "top_p",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
)


# Lengths of media that nobody knows yet leave room for an answer; the join puts the true number here.
UNKNOWN_MAX_TOKENS = 1


AS_OPENAI = SamplingDefaults()


class Codes(msgspec.Struct, frozen=True):
    """Token ids of what a decoder's manifest entry names by text."""

    begin: int
    end: int
    first: int
    last: int


def build(
    head: Head,
    request: ChatRequest,
    prompt_ids: list[int],
    max_tokens: int,
    outputs: Sequence[Output] = (),
    defaults: SamplingDefaults = AS_OPENAI,
) -> GenerateJob:
    """The generate job of a chat completion. `max_tokens` is what the answer may have, at most."""
    return GenerateJob(head, prompt_ids, _sampling(request, max_tokens, defaults), outputs=list(outputs))


def encode_jobs(draft: GenerateJob, slots: Sequence[Slot], room: Room, missing: Sequence[int]) -> list[EncodeJob]:
    """One job for each artifact that is missing, by the numbers of the slots; the same one twice is asked for once."""
    first = {slots[number].artifact: number for number in reversed(missing)}
    return [EncodeJob(draft.head, list(slots), number, draft, room) for number in sorted(first.values())]


def room_of(request: ChatRequest, context_tokens: int) -> Room:
    if request.max_completion_tokens:
        return Room(context_tokens, request.max_completion_tokens, request.min_tokens or 0, "max_completion_tokens")
    return Room(context_tokens, request.max_tokens, request.min_tokens or 0)


def outputs(
    request: ChatRequest, manifest: Manifest, codes: Mapping[DecoderKind, Codes], voice: str = ""
) -> list[Output]:
    """What of the answer goes to decoders.

    Code that a model writes always does, asked for or not, because it must not appear as text. Text is spoken when
    the request asks for it.
    """
    found = [
        _output(manifest, kind, image_options(request) if kind == "image" else _speech_options(request, voice), one)
        for kind, one in codes.items()
    ]
    if request.speaks and "audio" not in codes:
        found.append(_output(manifest, "audio", _speech_options(request, voice), None))
    return found


def speech(head: Head, manifest: Manifest, text: str, options: SpeechOptions) -> DecodeJob:
    """Text to be spoken as it is."""
    return DecodeJob(head, f"{manifest.id}/audio", options, text=text)


def image_options(request: ChatRequest, param: str = "image.size") -> ImageOptions:
    """Raises TriptychError: invalid_request, about `param`, when the size is out of range."""
    asked = request.image or ImageOut()
    default = ImageOptions()
    given = {
        "format": asked.format,
        "steps": asked.steps,
        "guidance": asked.guidance,
        "quality": asked.quality,
        # Whoever fixes the seed of the answer wants the same picture, too.
        "seed": asked.seed if asked.seed is not None or request.seed is None else request.seed & (2**63 - 1),
    }
    if asked.size not in (None, "auto"):
        width, _, height = asked.size.partition("x")
        given |= {"width": int(width), "height": int(height)}
    known = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert({"type": "image"} | msgspec.structs.asdict(default) | known, ImageOptions)
    except msgspec.ValidationError as error:
        raise TriptychError("invalid_request", f"Invalid value for '{param}': {error}.", param=param) from error


def _speech_options(request: ChatRequest, voice: str) -> SpeechOptions:
    if request.audio is None:
        return SpeechOptions()
    return SpeechOptions(voice, request.audio.format, chunked=request.streamed)


def _output(
    manifest: Manifest, kind: DecoderKind, options: ImageOptions | SpeechOptions, codes: Codes | None
) -> Output:
    name = f"{manifest.id}/{kind}"
    if codes is None:
        return Output(name, options)
    return Output(name, options, codes.begin, codes.end, codes.first, codes.last)


def headers(request: ChatRequest) -> Headers:
    """Record headers: what the client said about itself, for whoever reads the topic; workers do not look at it."""
    said = {"user": request.user, "safety-identifier": request.safety_identifier}
    found = [(name, value.encode()) for name, value in said.items() if value is not None]
    if request.metadata:
        found.append(("metadata", msgspec.json.encode(request.metadata)))
    return found


def _sampling(request: ChatRequest, max_tokens: int, defaults: SamplingDefaults) -> Sampling:
    given = {name: value for name in SAME_NAME if (value := _first(request, defaults, name)) is not None}
    return Sampling(
        max_tokens=max_tokens,
        top_k=max(0, _first(request, defaults, "top_k") or 0),
        stop=[request.stop] if isinstance(request.stop, str) else request.stop or [],
        logit_bias={int(token): bias for token, bias in (request.logit_bias or {}).items()},
        logprobs=request.top_logprobs or 0 if request.logprobs else None,
        constraint=_constraint(request),
        **given,
    )


def _first(request: ChatRequest, defaults: SamplingDefaults, name: str) -> Any:
    """What the client says, else what the model's makers recommend, else None."""
    said = getattr(request, name)
    return getattr(defaults, name, None) if said is None else said


def _constraint(request: ChatRequest) -> JsonObject | JsonSchema | None:
    match request.response_format:
        case JsonObjectFormat():
            return JsonObject()
        case JsonSchemaFormat(spec):
            return JsonSchema(msgspec.json.encode(spec.schema).decode())
        case _:
            return None
