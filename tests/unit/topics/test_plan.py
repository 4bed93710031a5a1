"""A request becomes a job: what is left out takes the defaults of Sampling, and nothing gets lost."""

from typing import Any

import msgspec
import pytest

from schemas.jobs import Head, JsonObject, JsonSchema, Sampling
from schemas.manifest import SamplingDefaults
from schemas.openai_request import ChatRequest
from topics import plan

HEAD = Head("chatcmpl-1", "m", deadline_at=2.0, created_at=1.0, reply_to="gw")


def request_of(**body: Any) -> ChatRequest:
    return msgspec.convert({"model": "m", "messages": [{"role": "user", "content": "hi"}]} | body, ChatRequest)


def sampling(**body: Any) -> Sampling:
    return plan.build(HEAD, request_of(**body), [1, 2], 16).sampling


def test_a_plain_request_is_a_plain_job() -> None:
    job = plan.build(HEAD, request_of(), [1, 2], 16)
    assert (job.head, job.prompt_ids) == (HEAD, [1, 2])
    assert job.sampling == Sampling(max_tokens=16)


@pytest.mark.parametrize("name", plan.SAME_NAME)
def test_what_both_call_by_one_name_is_handed_on_even_when_it_is_zero(name: str) -> None:
    value = {"n": 3, "ignore_eos": True, "repetition_penalty": 1.5, "top_p": 0.5}.get(name, 0)
    assert getattr(sampling(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        ({"top_k": -1}, "top_k", 0),
        ({"top_k": 7}, "top_k", 7),
        ({"stop": "END"}, "stop", ["END"]),
        ({"stop": ["a", "b"]}, "stop", ["a", "b"]),
        ({"logit_bias": {"5": -1}}, "logit_bias", {5: -1.0}),
        ({"logprobs": True}, "logprobs", 0),
        ({"logprobs": True, "top_logprobs": 4}, "logprobs", 4),
        ({"logprobs": False}, "logprobs", None),
        ({"response_format": {"type": "text"}}, "constraint", None),
        ({"response_format": {"type": "json_object"}}, "constraint", JsonObject()),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "null"}}}},
            "constraint",
            JsonSchema('{"type":"null"}'),
        ),
    ],
)
def test_what_they_call_differently_is_translated(body: dict[str, Any], field: str, value: object) -> None:
    assert getattr(sampling(**body), field) == value


def test_record_headers_say_who_asked() -> None:
    assert plan.headers(request_of()) == []
    assert plan.headers(request_of(user="ü", safety_identifier="s", metadata={"a": "b"})) == [
        ("user", "ü".encode()),
        ("safety-identifier", b"s"),
        ("metadata", b'{"a":"b"}'),
    ]


def test_what_a_client_leaves_out_is_what_the_makers_of_the_model_recommend() -> None:
    defaults = SamplingDefaults(temperature=0.6, top_p=0.9, top_k=40)
    silent = plan.build(HEAD, request_of(), [1, 2], 16, (), defaults).sampling
    assert (silent.temperature, silent.top_p, silent.top_k, silent.min_p) == (0.6, 0.9, 40, 0.0)
    said = plan.build(HEAD, request_of(temperature=0, top_k=-1), [1, 2], 16, (), defaults).sampling
    assert (said.temperature, said.top_p, said.top_k) == (0, 0.9, 0)
