"""Requests that are refused: each with a code, and the parameter by its path."""

from typing import Any

import msgspec
import pytest

from gateway import admit, capabilities, decode
from schemas.errors import TriptychError
from schemas.manifest import Decoder, Limits, Manifest, MediaLimits, Source

MANIFEST = Manifest("tiny", Source("hf", repo="tests/tiny"), Limits(context_tokens=100, max_n=4, max_logprobs=5))
PLAIN = MANIFEST.__class__("plain", MANIFEST.source, MANIFEST.limits, capabilities=("chat",))
VOCAB = 1_000
USER = {"role": "user", "content": "hi"}


def refusal(body: dict[str, Any], manifest: Manifest = MANIFEST) -> TriptychError:
    with pytest.raises(TriptychError) as raised:
        request = decode.chat_request(msgspec.json.encode({"model": "tiny", "messages": [USER]} | body), "")
        admit.check(request, manifest, VOCAB)
        capabilities.check(request, capabilities.items_of(request.messages), manifest)
    assert raised.value.fault.status == 400
    assert raised.value.param is None or raised.value.param in str(raised.value)
    return raised.value


def said(role: str, **rest: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": role, **rest}]}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        # unknown, missing
        ({"wat": 1}, "unknown_parameter", "wat"),
        ({"messages": [USER | {"wat": 1}]}, "unknown_parameter", "messages[0].wat"),
        ({"stream": True, "stream_options": {"wat": True}}, "unknown_parameter", "stream_options.wat"),
        ({"messages": [{"content": "hi"}]}, "missing_parameter", "messages[0].role"),
        (said("user"), "missing_parameter", "messages[1].content"),
        (said("assistant"), "missing_parameter", "messages[1].content"),
        (said("tool", content="x"), "missing_parameter", "messages[1].tool_call_id"),
        ({"response_format": {"type": "json_schema"}}, "missing_parameter", "response_format.json_schema"),
        # wrong types and words
        ({"model": 1}, "invalid_request", "model"),
        ({"messages": []}, "invalid_request", "messages"),
        ({"messages": "hi"}, "invalid_request", "messages"),
        (said("robot", content="x"), "invalid_request", "messages[1].role"),
        (said("function", content="x", name="f"), "invalid_request", "messages[1].role"),
        (said("user", content=5), "invalid_request", "messages[1].content"),
        (said("user", content=[]), "invalid_request", "messages[1].content"),
        (said("user", content=[{"type": "image_url"}]), "missing_parameter", "messages[1].content[0].image_url"),
        (said("user", content=[{"type": "hologram"}]), "invalid_request", "messages[1].content[0].type"),
        (
            said("system", content=[{"type": "image_url", "image_url": {"url": "x"}}]),
            "invalid_request",
            "messages[1].content[0].type",
        ),
        (said("user", content=[{"type": "text", "text": 1}]), "invalid_request", "messages[1].content[0].text"),
        ({"stream": "yes"}, "invalid_request", "stream"),
        ({"max_tokens": 1.5}, "invalid_request", "max_tokens"),
        ({"seed": 2**63}, "invalid_request", "seed"),
        ({"response_format": {"type": "xml"}}, "invalid_request", "response_format.type"),
        ({"metadata": {"a": 1}}, "invalid_request", "metadata"),
        ({"metadata": {"a" * 65: "b"}}, "invalid_request", "metadata"),
        ({"metadata": {str(n): "" for n in range(17)}}, "invalid_request", "metadata"),
        # out of range
        ({"temperature": -0.1}, "invalid_request", "temperature"),
        ({"temperature": 2.1}, "invalid_request", "temperature"),
        ({"top_p": 0}, "invalid_request", "top_p"),
        ({"top_p": 1.1}, "invalid_request", "top_p"),
        ({"top_k": -2}, "invalid_request", "top_k"),
        ({"min_p": 1.5}, "invalid_request", "min_p"),
        ({"n": 0}, "invalid_request", "n"),
        ({"n": 5}, "invalid_request", "n"),
        ({"max_tokens": 0}, "invalid_request", "max_tokens"),
        ({"max_completion_tokens": -1}, "invalid_request", "max_completion_tokens"),
        ({"presence_penalty": 2.5}, "invalid_request", "presence_penalty"),
        ({"frequency_penalty": -2.5}, "invalid_request", "frequency_penalty"),
        ({"repetition_penalty": 0}, "invalid_request", "repetition_penalty"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "invalid_request", "stop"),
        ({"stop": ""}, "invalid_request", "stop"),
        ({"stop": [""]}, "invalid_request", "stop[0]"),
        ({"logit_bias": {"5": 101}}, "invalid_request", "logit_bias"),
        ({"logit_bias": {"1000": 1}}, "invalid_request", "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "invalid_request", "logit_bias"),
        ({"logit_bias": {"five": 1}}, "invalid_request", "logit_bias"),
        ({"logit_bias": {"\u0665": 1}}, "invalid_request", "logit_bias"),  # a digit, but none of JSON's
        ({"logit_bias": {"9" * 5_000: 1}}, "invalid_request", "logit_bias"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_request", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 6}, "invalid_request", "top_logprobs"),
        # that do not go together
        ({"top_logprobs": 1}, "invalid_request", "top_logprobs"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "invalid_request", "max_tokens"),
        ({"stream_options": {"include_usage": True}}, "invalid_request", "stream_options"),
        ({"parallel_tool_calls": True}, "invalid_request", "parallel_tool_calls"),
        # known to OpenAI, not to us
        ({"tools": []}, "unsupported_parameter", "tools"),
        ({"tool_choice": "auto"}, "unsupported_parameter", "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "unsupported_parameter", "tool_choice"),
        ({"functions": [{}]}, "unsupported_parameter", "functions"),
        ({"function_call": "auto"}, "unsupported_parameter", "function_call"),
        ({"reasoning_effort": "low"}, "unsupported_parameter", "reasoning_effort"),
        ({"audio": {"voice": "alloy"}}, "missing_parameter", "audio.format"),
        ({"audio": {"voice": "alloy", "format": "wav"}}, "unsupported_parameter", "audio"),
        ({"image": {"size": "8x8"}}, "unsupported_parameter", "image"),
        ({"image": {"size": "large"}}, "invalid_request", "image.size"),
        ({"image": {"steps": 0}}, "invalid_request", "image.steps"),
        ({"prediction": {"type": "content"}}, "unsupported_parameter", "prediction"),
        ({"web_search_options": {}}, "unsupported_parameter", "web_search_options"),
        ({"verbosity": "low"}, "unsupported_parameter", "verbosity"),
        ({"prompt_cache_key": "k"}, "unsupported_parameter", "prompt_cache_key"),
        ({"store": True}, "unsupported_parameter", "store"),
        ({"service_tier": "flex"}, "unsupported_parameter", "service_tier"),
        ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "unsupported_parameter",
            "stream_options.include_obfuscation",
        ),
        (said("assistant", tool_calls=[{"id": "1"}]), "unsupported_parameter", "messages[1].tool_calls"),
        (said("assistant", audio={"wat": "1"}), "unknown_parameter", "messages[1].audio.wat"),
        (said("assistant", content="x", function_call={}), "unsupported_parameter", "messages[1].function_call"),
    ],
)
def test_a_bad_request_is_refused_by_name(body: dict[str, Any], code: str, param: str) -> None:
    error = refusal(body)
    assert (error.code, error.param) == (code, param)


@pytest.mark.parametrize(
    ("part", "capability"),
    [
        ({"type": "image_url", "image_url": {"url": "data:,"}}, "image_in"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "audio_in"),
        ({"type": "video_url", "video_url": {"url": "https://x/y"}}, "video_in"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "image_in"),
    ],
)
def test_media_that_a_model_cannot_take_are_refused_by_capability_and_model(
    part: dict[str, Any], capability: str
) -> None:
    error = refusal(said("user", content=[{"type": "text", "text": "look"}, part]))
    assert (error.code, error.param) == ("unsupported_parameter", "messages[1].content[1]")
    assert f"'{capability}'" in error.message
    assert "'tiny'" in error.message


OMNI = Manifest(
    "omni",
    MANIFEST.source,
    MANIFEST.limits,
    capabilities=("chat", "json", "logprobs", "image_in", "image_out", "speech_out"),
    decoders={"audio": Decoder("hibari", voices=("heart",)), "image": Decoder("digits", begin="<", end=">")},
    media=MediaLimits(items=2),
)
SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "heart", "format": "wav"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"modalities": ["text", "audio"]}, "missing_parameter", "audio"),
        ({"modalities": ["audio"], "audio": SPOKEN["audio"]}, "invalid_request", "modalities"),
        ({"modalities": ["image"]}, "invalid_request", "modalities"),
        ({"audio": SPOKEN["audio"]}, "invalid_request", "audio"),
        (SPOKEN | {"audio": {"voice": "nobody", "format": "wav"}}, "invalid_request", "audio.voice"),
        (SPOKEN | {"audio": {"voice": "heart", "format": "ogg"}}, "invalid_request", "audio.format"),
        (SPOKEN | {"stream": True}, "invalid_request", "audio.format"),
        ({"image": {"size": "4x8"}}, "invalid_request", "image.size"),
        (said("user", content=[PICTURE] * 3), "media_too_many", "messages[1].content[2]"),
    ],
)
def test_what_an_omni_model_cannot_give_is_refused_too(body: dict[str, Any], code: str, param: str) -> None:
    error = refusal(body, OMNI)
    assert (error.code, error.param) == (code, param)


@pytest.mark.parametrize(
    "body",
    [
        SPOKEN,
        SPOKEN | {"audio": {"voice": "alloy", "format": "mp3"}},  # OpenAI's names are the model's first voice
        SPOKEN | {"audio": {"voice": {"id": "heart"}, "format": "pcm16"}, "stream": True},
        {"modalities": ["text", "image"], "image": {"size": "64x48", "steps": 3, "response_format": "b64_json"}},
        {"image": {"size": "auto"}},
        said("user", content=[PICTURE, {"type": "text", "text": "a"}, PICTURE]),
        said("assistant", content=None, audio={"id": "audio_1", "transcript": "a", "data": "", "expires_at": 1}),
    ],
)
def test_what_an_omni_model_can_do_passes(body: dict[str, Any]) -> None:
    request = decode.chat_request(msgspec.json.encode({"model": "omni", "messages": [USER]} | body), "")
    admit.check(request, OMNI, VOCAB)
    capabilities.check(request, capabilities.items_of(request.messages), OMNI)


@pytest.mark.parametrize(
    ("body", "param"),
    [({"logprobs": True}, "logprobs"), ({"response_format": {"type": "json_object"}}, "response_format")],
)
def test_what_a_model_cannot_do_is_refused(body: dict[str, Any], param: str) -> None:
    error = refusal(body, PLAIN)
    assert (error.code, error.param) == ("unsupported_parameter", param)


@pytest.mark.parametrize(
    "body",
    [
        {},
        # Null is how some SDKs write "not given".
        dict.fromkeys(
            [
                "temperature", "top_p", "n", "stop", "max_tokens", "seed", "tools", "tool_choice", "functions",
                "logit_bias", "stream", "stream_options", "response_format", "metadata", "user", "store", "audio",
            ]
        ),
        {"tool_choice": "none", "store": False, "service_tier": "default", "modalities": ["text"]},
        {"temperature": 0, "top_p": 1, "n": 4, "presence_penalty": -2, "frequency_penalty": 2, "top_k": -1, "min_p": 0},
        {"logit_bias": {"0": -100, "999": 100}, "stop": ["a", "b", "c", "d"]},
        {"response_format": {"type": "text"}},
        said("assistant", content="x", refusal=None, annotations=[], audio=None, tool_calls=None, function_call=None),
        said("assistant", content=None, refusal="no"),
        said("developer", content=[{"type": "text", "text": "a"}]),
        said("tool", content="42", tool_call_id="call_1"),
    ],
)  # fmt: skip
def test_a_good_request_passes(body: dict[str, Any]) -> None:
    request = decode.chat_request(msgspec.json.encode({"model": "tiny", "messages": [USER]} | body), "application/json")
    admit.check(request, MANIFEST, VOCAB)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b'{"model": "m"', "not valid JSON"),
        (b'{"model": "\xff"}', "not valid JSON"),
        (b'{"model": "\\ud800", "messages": []}', "not valid JSON"),
        (b'{"model": "m", "tools": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_what_is_no_json_is_said_to_be_none(body: bytes, words: str) -> None:
    with pytest.raises(TriptychError, match=words) as raised:
        decode.chat_request(body, "application/json; charset=utf-8")
    assert raised.value.code == "invalid_json"


def test_a_body_of_very_many_values_is_refused_before_it_is_read() -> None:
    """Each of them is a few bytes, so that the limit of bytes lets millions through."""
    many = b'{"model":"m","messages":[' + b'{"role":"user","content":""},' * decode.MOST_VALUES + b"{}]}"
    with pytest.raises(TriptychError) as raised:
        decode.chat_request(many, "")
    assert raised.value.fault.status == 413


def test_a_body_of_one_very_long_value_is_read() -> None:
    url = "data:image/png;base64," + "A" * 10_000_000
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    assert decode.chat_request(msgspec.json.encode(body), "").model == "m"


@pytest.mark.parametrize("media_type", ["text/plain", "multipart/form-data; boundary=x"])
def test_another_content_type_is_refused(media_type: str) -> None:
    with pytest.raises(TriptychError) as raised:
        decode.chat_request(b"{}", media_type)
    assert raised.value.fault.status == 415


def room(prompt_tokens: int, **body: Any) -> int:
    raw = msgspec.json.encode({"model": "tiny", "messages": [USER]} | body)
    return admit.room(decode.chat_request(raw, ""), prompt_tokens, 100)


def test_an_answer_may_have_what_was_asked_for_or_what_is_left() -> None:
    assert room(40) == 60
    assert room(99) == 1
    assert room(40, max_tokens=60) == 60
    assert room(40, max_completion_tokens=7) == 7


@pytest.mark.parametrize(
    ("prompt_tokens", "body", "param", "words"),
    [
        (
            100,
            {},
            "messages",
            r"you requested 100 tokens in the messages\. Please reduce the length of the messages\.$",
        ),
        (100, {"max_tokens": 1}, "messages", r"\(100 in the messages, 1 in .*reduce the length of the messages\.$"),
        (
            40,
            {"max_tokens": 61},
            "max_tokens",
            r"you requested 101 tokens \(40 in the messages, 61 in the completion\)\. "
            r"Please reduce 'max_tokens' to at most 60, or the length of the messages\.$",
        ),
        (
            99,
            {"max_completion_tokens": 2},
            "max_completion_tokens",
            "Please reduce 'max_completion_tokens' to at most 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers_by_what_can_be_changed(
    prompt_tokens: int, body: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(TriptychError, match=words) as raised:
        room(prompt_tokens, **body)
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", param)


def test_more_tokens_at_least_than_at_most_is_refused() -> None:
    with pytest.raises(TriptychError) as raised:
        room(40, min_tokens=8, max_tokens=7)
    assert raised.value.param == "min_tokens"
