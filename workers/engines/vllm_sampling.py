"""From our sampling parameters to vLLM's, and the checks before anything reaches the engine. Pure; imports no vLLM.

The engine runs in its own process and dies whole: what one request could break there is refused here.
"""

import math
from collections.abc import Sequence, Set
from typing import Any

import msgspec

from schemas.errors import TriptychError
from schemas.jobs import GenerateJob, JsonObject, JsonSchema, Sampling
from schemas.manifest import Limits
from schemas.media import ImageOptions, Output
from workers.engine import Unrunnable

# A torch generator takes no larger seed: the error would surface inside the engine.
_MAX_SEED = 2**63 - 1
_MAX_SCHEMA_BYTES = 64 << 10
_MAX_PROPERTIES = 500  # a second of compiling
# OpenAI's range, where vLLM would cut without a word.
_MAX_BIAS = 100.0


def sampling_params(sampling: Sampling, vocab_size: int) -> dict[str, Any]:
    """The keyword arguments of vLLM's SamplingParams, but for the constraint and the output kind."""
    greedy_many = sampling.temperature == 0 and sampling.n > 1
    return {
        "n": sampling.n,
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        # vLLM refuses n > 1 without randomness. Choosing among the one likeliest token is the same thing.
        "temperature": 1.0 if greedy_many else sampling.temperature,
        "top_k": 1 if greedy_many else _top_k(sampling.top_k, vocab_size),
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "seed": sampling.seed,
        "stop": sampling.stop,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "logit_bias": sampling.logit_bias or None,
        "logprobs": sampling.logprobs,
        "ignore_eos": sampling.ignore_eos,
        "skip_special_tokens": True,
    }


def constraint(sampling: Sampling) -> dict[str, Any] | None:
    """The keyword arguments of vLLM's StructuredOutputsParams; None when the output is free."""
    match sampling.constraint:
        case JsonObject():
            return {"json_object": True}
        case JsonSchema(schema):
            return {"json": schema}
        case None:
            return None


def check(job: GenerateJob, limits: Limits, vocab_size: int) -> None:
    """Everything that can be told from the job alone.

    Raises:
        Unrunnable: it can never run here; `param` names the request's field.
    """
    _check_prompt(job.prompt_ids, job.sampling.max_tokens, limits.context_tokens, vocab_size)
    _check_sampling(job.sampling, limits, vocab_size)


def check_outputs(outputs: Sequence[Output], special: Set[int]) -> None:
    """Whether the tokens of pictures are special ones: the text of others would be shown to the client.

    Raises:
        TriptychError: internal, for the model's manifest is at fault.
    """
    for one in outputs:
        if (
            isinstance(one.options, ImageOptions)
            and not {one.begin, one.end, *range(one.first, one.last + 1)} <= special
        ):
            raise TriptychError("internal", "the model's picture tokens are not special tokens of its vocabulary")


def _check_prompt(prompt_ids: list[int], max_tokens: int, context_tokens: int, vocab_size: int) -> None:
    if not prompt_ids:
        raise Unrunnable("the prompt is empty", "messages")
    if len(prompt_ids) + max_tokens > context_tokens:
        raise Unrunnable(
            f"{len(prompt_ids)} prompt tokens and {max_tokens} to generate do not fit the model's {context_tokens}",
            "messages" if len(prompt_ids) >= context_tokens else "max_tokens",
        )
    if min(prompt_ids) < 0 or max(prompt_ids) >= vocab_size:
        raise Unrunnable(f"a prompt token is outside the vocabulary of {vocab_size}", "messages")


def _check_sampling(sampling: Sampling, limits: Limits, vocab_size: int) -> None:
    if not 1 <= sampling.n <= limits.max_n:
        raise Unrunnable(f"n must be between 1 and {limits.max_n}", "n")
    if sampling.logprobs is not None and not 0 <= sampling.logprobs <= limits.max_logprobs:
        raise Unrunnable(f"at most {limits.max_logprobs} log probabilities a token", "top_logprobs")
    if sampling.seed is not None and not -_MAX_SEED - 1 <= sampling.seed <= _MAX_SEED:
        raise Unrunnable("seed must fit 64 bits", "seed")
    if any(not 0 <= token_id < vocab_size for token_id in sampling.logit_bias):
        raise Unrunnable(f"logit_bias names a token outside the vocabulary of {vocab_size}", "logit_bias")
    if any(not math.fabs(bias) <= _MAX_BIAS for bias in sampling.logit_bias.values()):
        raise Unrunnable(f"logit_bias must be between {-_MAX_BIAS:.0f} and {_MAX_BIAS:.0f}", "logit_bias")
    if isinstance(sampling.constraint, JsonSchema):
        _check_schema(sampling.constraint.schema)


def _check_schema(schema: str) -> None:
    """What would keep the grammar compiler busy for minutes: it takes time by the square of optional properties."""
    if len(schema.encode()) > _MAX_SCHEMA_BYTES:
        raise Unrunnable(f"the JSON schema is larger than {_MAX_SCHEMA_BYTES} bytes", "response_format")
    try:
        parsed = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unrunnable(f"the JSON schema is no JSON: {error}", "response_format") from error
    if not isinstance(parsed, dict):
        raise Unrunnable("the JSON schema must be an object", "response_format")
    if _properties(parsed) > _MAX_PROPERTIES:
        raise Unrunnable(f"the JSON schema has more than {_MAX_PROPERTIES} properties", "response_format")


def _properties(schema: dict[str, Any]) -> int:
    """All properties at all levels."""
    found = 0
    rest: list[Any] = [schema]
    while rest:
        node = rest.pop()
        children = list(node.values()) if isinstance(node, dict) else node
        if isinstance(node, dict) and isinstance(node.get("properties"), dict):
            found += len(node["properties"])
        rest += [child for child in children if isinstance(child, dict | list)]
    return found


def _top_k(top_k: int, vocab_size: int) -> int:
    """vLLM keeps it in 32 bits; from the size of the vocabulary on it changes nothing."""
    return top_k if top_k < vocab_size else 0
