from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from gateway import type_words
from gateway.asyncapi_types import Schema
from schemas.media import ImageOptions, SpeechOptions


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "integer"),
        (Annotated[int, Meta(ge=1)], "integer ≥ 1"),
        (Annotated[float, Meta(le=0.5)], "number ≤ 0.5"),
        (Annotated[int, Meta(ge=8, le=2048)], "integer, 8 to 2048"),
        (Literal["jpeg", "png"], '"jpeg" | "png"'),
        (int | None, "integer or null"),
        (bytes, "base64"),
        (list[list[int]], "array of array of integer"),
        (list[tuple[str, bytes]], "array of [string, base64]"),
        (dict[int, float], "object of number"),
        (Any, "anything"),
    ],
)
def test_a_type_is_told_in_few_words(kind: Any, words: str) -> None:
    assert "".join(one.text for one in type_words.of(_schema(kind))) == words


def test_types_that_have_a_place_of_their_own_are_named_for_links() -> None:
    pieces = type_words.of(_schema(list[ImageOptions | SpeechOptions] | None))
    assert [(one.text, one.type) for one in pieces] == [
        ("array of ", ""), ("ImageOptions", "ImageOptions"), (" or ", ""), ("SpeechOptions", "SpeechOptions"),
        (" or ", ""), ("null", ""),
    ]  # fmt: skip


def _schema(kind: Any) -> Schema:
    (schema,), _ = msgspec.json.schema_components([kind])
    return msgspec.convert(schema, Schema)
