"""The OpenAI types against the official SDK's own: no documented field may be unknown to us."""

import typing

import msgspec
import pytest
from openai.types import chat
from openai.types.chat import completion_create_params

from schemas import openai_request
from schemas.openai_reply import ChatCompletion, ChatCompletionChunk
from schemas.openai_request import ChatRequest


def names(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def test_every_field_of_a_chat_request_is_declared() -> None:
    documented = set(typing.get_type_hints(completion_create_params.CompletionCreateParamsBase)) | {"stream"}
    assert documented - names(ChatRequest) == set()


def test_whatever_is_listed_as_unsupported_is_a_field() -> None:
    assert set(openai_request.UNSUPPORTED) <= names(ChatRequest)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (openai_request.SystemMessage, chat.ChatCompletionSystemMessageParam),
        (openai_request.DeveloperMessage, chat.ChatCompletionDeveloperMessageParam),
        (openai_request.UserMessage, chat.ChatCompletionUserMessageParam),
        (openai_request.AssistantMessage, chat.ChatCompletionAssistantMessageParam),
        (openai_request.ToolMessage, chat.ChatCompletionToolMessageParam),
        (openai_request.StreamOptions, chat.ChatCompletionStreamOptionsParam),
    ],
)
def test_every_field_of_a_message_is_declared(ours: type[msgspec.Struct], theirs: type) -> None:
    assert set(theirs.__annotations__) - {"role"} <= names(ours)


def test_an_assistants_message_can_be_given_back_as_the_sdk_dumps_it() -> None:
    dumped = chat.ChatCompletionMessage(role="assistant", content="hi").model_dump()
    assert msgspec.convert(dumped, openai_request.AssistantMessage).content == "hi"


@pytest.mark.parametrize(
    ("ours", "theirs"), [(ChatCompletion, chat.ChatCompletion), (ChatCompletionChunk, chat.ChatCompletionChunk)]
)
def test_replies_have_no_field_of_our_own(ours: type[msgspec.Struct], theirs: typing.Any) -> None:
    assert names(ours) <= set(theirs.model_fields)
