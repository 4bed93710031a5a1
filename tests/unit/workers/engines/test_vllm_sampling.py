import json
import math
from typing import Any

import pytest

from schemas.errors import TriptychError
from schemas.jobs import JsonObject, JsonSchema, Sampling
from schemas.manifest import Limits
from schemas.media import ImageOptions, Output, SpeechOptions
from tests.unit.workers.engines.jobs import job
from workers.engine import Unrunnable
from workers.engines.vllm_sampling import check, check_outputs, constraint, sampling_params

LIMITS = Limits(context_tokens=32, max_n=4, max_logprobs=5)
VOCAB = 100


def test_every_field_arrives_under_vllms_name() -> None:
    given = Sampling(
        max_tokens=7,
        n=2,
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        min_p=0.1,
        seed=3,
        stop=["x"],
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        logit_bias={4: -1.0},
        logprobs=2,
        min_tokens=1,
        ignore_eos=True,
    )
    translated = sampling_params(given, VOCAB)
    same = {field: getattr(given, field) for field in Sampling.__struct_fields__ if field != "constraint"}
    assert translated == same | {"skip_special_tokens": True}


def test_several_greedy_choices_become_sampling_of_the_likeliest_token_alone() -> None:
    translated = sampling_params(Sampling(max_tokens=1, n=2, temperature=0.0), VOCAB)
    assert translated["temperature"] == 1.0 and translated["top_k"] == 1
    assert sampling_params(Sampling(max_tokens=1, temperature=0.0), VOCAB)["temperature"] == 0.0


def test_a_top_k_beyond_the_vocabulary_means_all() -> None:
    assert sampling_params(Sampling(max_tokens=1, top_k=2**40), VOCAB)["top_k"] == 0


def test_constraints() -> None:
    assert constraint(Sampling(max_tokens=1)) is None
    assert constraint(Sampling(max_tokens=1, constraint=JsonObject())) == {"json_object": True}
    assert constraint(Sampling(max_tokens=1, constraint=JsonSchema("{}"))) == {"json": "{}"}


def properties(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"k{i}": {} for i in range(count)}}


@pytest.mark.parametrize(
    ("prompt", "sampling", "param"),
    [
        ([], {}, "messages"),
        ([VOCAB], {}, "messages"),
        ([-1], {}, "messages"),
        ([1] * 32, {}, "messages"),
        ([1] * 20, {"max_tokens": 13}, "max_tokens"),
        ([1], {"n": 5}, "n"),
        ([1], {"n": 0}, "n"),
        ([1], {"logprobs": 6}, "top_logprobs"),
        ([1], {"seed": 2**63}, "seed"),
        ([1], {"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ([1], {"logit_bias": {1: math.nan}}, "logit_bias"),
        ([1], {"logit_bias": {1: 101.0}}, "logit_bias"),
        ([1], {"constraint": JsonSchema("{")}, "response_format"),
        ([1], {"constraint": JsonSchema("true")}, "response_format"),
        ([1], {"constraint": JsonSchema("[" * 60_000)}, "response_format"),
        ([1], {"constraint": JsonSchema('"' + "x" * 70_000 + '"')}, "response_format"),
        ([1], {"constraint": JsonSchema(json.dumps(properties(501)))}, "response_format"),
        ([1], {"constraint": JsonSchema(json.dumps({"anyOf": [properties(300)] * 2}))}, "response_format"),
    ],
)
def test_what_could_break_the_engine_is_refused_naming_the_field(
    prompt: list[int], sampling: dict[str, Any], param: str
) -> None:
    with pytest.raises(Unrunnable) as refused:
        check(job(prompt, **sampling), LIMITS, VOCAB)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("prompt", "sampling"),
    [
        ([0, VOCAB - 1], {}),
        ([1] * 24, {"max_tokens": 8}),
        ([1], {"seed": -(2**63), "n": 4, "logprobs": 5, "logit_bias": {0: -100.0}}),
        ([1], {"constraint": JsonSchema(json.dumps(properties(500)))}),
    ],
)
def test_what_just_fits_passes(prompt: list[int], sampling: dict[str, Any]) -> None:
    check(job(prompt, **sampling), LIMITS, VOCAB)


def test_pictures_are_only_made_of_special_tokens_whose_text_nobody_sees() -> None:
    picture = Output("m/image", ImageOptions(), begin=1, end=2, first=3, last=5)
    check_outputs([picture, Output("m/audio", SpeechOptions())], {1, 2, 3, 4, 5})
    with pytest.raises(TriptychError, match="special"):
        check_outputs([picture], {1, 2, 3, 5})
