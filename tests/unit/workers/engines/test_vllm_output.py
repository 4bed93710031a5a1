from types import SimpleNamespace
from typing import Any

import pytest

from infra import gguf_tokenizer
from schemas.jobs import JsonObject
from tests.unit.infra import tiny_gguf
from tests.unit.workers.engines.jobs import job
from workers.engine import Delta, End, Step, Unrunnable
from workers.engines.token_bytes import TokenBytes
from workers.engines.vllm_output import EngineError, Translator

EOS = 2


def choice(index: int = 0, text: str = "", token_ids: tuple[int, ...] = (), **fields: Any) -> SimpleNamespace:
    given = {"finish_reason": None, "stop_reason": None, "logprobs": None}
    return SimpleNamespace(index=index, text=text, token_ids=list(token_ids), **{**given, **fields})


def output(*choices: SimpleNamespace, finished: bool = False, cached: int | None = 0) -> SimpleNamespace:
    return SimpleNamespace(outputs=list(choices), finished=finished, num_cached_tokens=cached)


def logprob(value: float, rank: int) -> SimpleNamespace:
    return SimpleNamespace(logprob=value, rank=rank)


def translate(*outputs: SimpleNamespace, **sampling: Any) -> list[Step]:
    translator = Translator(job(**sampling), TokenBytes(gguf_tokenizer.build(tiny_gguf.metadata())))
    return [step for one in outputs for step in translator.steps(one)]


def token(text: str) -> int:
    return tiny_gguf.tokens().index(text)


def test_choices_that_vllm_merged_come_apart_and_all_tokens_are_counted() -> None:
    first = output(choice(0, "ab", (10, 11)), choice(1, "c", (12,)), cached=2)
    last = output(choice(1, "", (EOS,), finish_reason="stop"), finished=True, cached=3)
    assert translate(first, last, n=2) == [
        Delta(0, "ab", [10, 11]),
        Delta(1, "c", [12]),
        Delta(1, "", [EOS], "stop"),
        End(prompt_tokens=3, completion_tokens=4, cached_tokens=2),
    ]


def test_an_output_that_says_nothing_is_no_step() -> None:
    assert translate(output(choice())) == []


def test_log_probabilities_carry_exact_bytes_and_the_likeliest_in_order() -> None:
    candidates = {token("b"): logprob(-2.0, 3), token("a"): logprob(-0.5, 1), token("ð"): logprob(-1.0, 2)}
    (delta,) = translate(output(choice(0, "b", (token("b"),), logprobs=[candidates])), logprobs=2)
    assert isinstance(delta, Delta) and delta.logprobs is not None
    (position,) = delta.logprobs
    assert (position.token, position.raw, position.logprob) == ("b", b"b", -2.0)
    assert [(one.raw, one.logprob) for one in position.top] == [(b"a", -0.5), (b"\xf0", -1.0)]


def test_a_forbidden_token_has_a_finite_log_probability() -> None:
    candidates = {token("a"): logprob(0.0, 1), token("b"): logprob(float("-inf"), 2)}
    (delta,) = translate(output(choice(0, "a", (token("a"),), logprobs=[candidates])), logprobs=2)
    assert isinstance(delta, Delta) and delta.logprobs is not None
    assert delta.logprobs[0].top[1].logprob == -9999.0


def test_the_token_that_ends_the_answer_has_no_log_probability_for_it_has_no_text() -> None:
    ending = [{token("a"): logprob(0.0, 1)}, {EOS: logprob(0.0, 1)}]
    by_token = choice(0, "a", (token("a"), EOS), finish_reason="stop", logprobs=ending)
    (delta, _) = translate(output(by_token, finished=True), logprobs=0)
    assert isinstance(delta, Delta) and delta.logprobs is not None
    assert [one.token for one in delta.logprobs] == ["a"] and delta.token_ids == [token("a"), EOS]
    by_string = choice(0, "", (token("a"),), finish_reason="stop", stop_reason="a", logprobs=ending[:1])
    (delta, _) = translate(output(by_string, finished=True), logprobs=0)
    assert isinstance(delta, Delta) and delta.logprobs is not None and len(delta.logprobs) == 1


def test_an_error_of_a_constrained_request_is_the_response_formats_fault_and_else_the_engines() -> None:
    failed = output(choice(finish_reason="error"), finished=True)
    with pytest.raises(Unrunnable) as refused:
        translate(failed, constraint=JsonObject())
    assert refused.value.param == "response_format"
    with pytest.raises(EngineError, match="'error'"):
        translate(failed)
