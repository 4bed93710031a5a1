"""A checked, rendered request -> the jobs that answer it. Pure: no clock, no client, no waiting."""

import msgspec

from schemas.jobs import GenerateJob, Head, JsonObject, JsonSchema, Sampling
from schemas.openai_request import ChatRequest, JsonObjectFormat, JsonSchemaFormat

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


def build(head: Head, request: ChatRequest, prompt_ids: list[int], max_tokens: int) -> GenerateJob:
    """The generate job of a chat completion. `max_tokens` is what the answer may have, at most."""
    return GenerateJob(head=head, prompt_ids=prompt_ids, sampling=_sampling(request, max_tokens))


def headers(request: ChatRequest) -> list[tuple[str, bytes]]:
    """Record headers: what the client said about itself, for whoever reads the topic; workers do not look at it."""
    said = {"user": request.user, "safety-identifier": request.safety_identifier}
    found = [(name, value.encode()) for name, value in said.items() if value is not None]
    if request.metadata:
        found.append(("metadata", msgspec.json.encode(request.metadata)))
    return found


def _sampling(request: ChatRequest, max_tokens: int) -> Sampling:
    given = {name: value for name in SAME_NAME if (value := getattr(request, name)) is not None}
    return Sampling(
        max_tokens=max_tokens,
        top_k=max(0, request.top_k or 0),
        stop=[request.stop] if isinstance(request.stop, str) else request.stop or [],
        logit_bias={int(token): bias for token, bias in (request.logit_bias or {}).items()},
        logprobs=request.top_logprobs or 0 if request.logprobs else None,
        constraint=_constraint(request),
        **given,
    )


def _constraint(request: ChatRequest) -> JsonObject | JsonSchema | None:
    match request.response_format:
        case JsonObjectFormat():
            return JsonObject()
        case JsonSchemaFormat(spec):
            return JsonSchema(msgspec.json.encode(spec.schema).decode())
        case _:
            return None
