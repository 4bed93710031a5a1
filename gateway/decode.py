"""Body bytes -> typed request, once. What the decoder finds wrong becomes a 400 that names the parameter."""

import math
import re
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from litestar import Request

from schemas.errors import Code, TriptychError
from schemas.openai_request import ChatRequest

T = TypeVar("T")

_chat = msgspec.json.Decoder(ChatRequest)

# A body is large because of media in it, which are a few long strings. As many small values as fit into it would hold
# up everybody else for seconds; as many as this, for a tenth of one.
MOST_VALUES = 65_536

# msgspec ends its messages with where it was: "... - at `$.messages[0].role`".
_WHERE = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`$")
_FIELD = re.compile(r"(?:unknown|required) field `(?P<name>[^`]*)`")


def chat_request(body: bytes, content_type: str) -> ChatRequest:
    """Decode the body of `POST /v1/chat/completions`; raises as `json_body` does."""
    return json_body(body, content_type, _chat)


async def whole(request: Request[Any, Any, Any], most_bytes: float = math.inf) -> bytes:
    """The body of a request whose content type is JSON's. `most_bytes`: where that is less than the route allows.

    The framework's own `body()` would keep it until the answer's end.

    Raises:
        TriptychError: unsupported_media_type before anything is read, request_too_large.
    """
    check_type(request.headers.get("content-type", ""))
    pieces, size_bytes = [], 0
    async with aclosing(request.stream()) as body:
        async for piece in body:
            size_bytes += len(piece)
            if size_bytes > most_bytes:
                raise TriptychError("request_too_large", f"The request body has more than {most_bytes} bytes.")
            pieces.append(piece)
    return b"".join(pieces)


def json_body(body: bytes, content_type: str, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a JSON body.

    Raises:
        TriptychError: unsupported_media_type, request_too_large, invalid_json, or what is wrong with which parameter.
    """
    check_type(content_type)
    if len(body) > MOST_VALUES and body.count(b",") > MOST_VALUES:
        raise TriptychError("request_too_large", f"The request body has more than {MOST_VALUES} values.")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TriptychError("invalid_json", f"The request body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise TriptychError("invalid_json", "The request body is nested too deeply.") from error


def check_type(content_type: str) -> None:
    """Raises TriptychError: unsupported_media_type, when it is said to be something else than JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise TriptychError(
            "unsupported_media_type", f"Unsupported content type {media_type!r}: send the request as application/json."
        )


def texts(given: Mapping[str, object], into: type[T]) -> T:
    """Form fields or a query, whose values are all text; raises TriptychError as `json_body` does."""
    try:
        return msgspec.convert(dict(given), into, strict=False)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error


def _explained(message: str) -> TriptychError:
    where = _WHERE.search(message)
    # "[...]" stands for a key the decoder does not name.
    path = where["path"].replace("[...]", "") if where else ""
    what = message[: where.start()] if where else message
    if field := _FIELD.search(what):
        path = f"{path}.{field['name']}" if path else field["name"]
        code: Code = "unknown_parameter" if "unknown field" in what else "missing_parameter"
        text = f"Unknown parameter: '{path}'." if "unknown field" in what else f"Missing required parameter: '{path}'."
        return TriptychError(code, text, param=path)
    if not path:
        return TriptychError("invalid_request", f"The request body is wrong: {what}.")
    return TriptychError("invalid_request", f"Invalid value for '{path}': {what}.", param=path)
