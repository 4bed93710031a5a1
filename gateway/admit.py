"""Pure checks of a decoded request against the model and against itself. Passing them, it can be planned."""

from gateway.errors import unsupported
from schemas.errors import TriptychError
from schemas.manifest import Manifest
from schemas.openai_request import UNSUPPORTED, AssistantMessage, ChatMessage, ChatRequest, TextFormat


def check(request: ChatRequest, manifest: Manifest, vocab_size: int) -> None:
    """Everything that can be said before the prompt is rendered.

    Raises:
        TriptychError: a 400 that names the parameter.
    """
    _refuse_unsupported(request)
    for number, message in enumerate(request.messages):
        _check_message(message, f"messages[{number}]")
    _check_fit(request)
    _check_model(request, manifest)
    _check_bias(request, vocab_size)


def room(request: ChatRequest, prompt_tokens: int, context_tokens: int) -> int:
    """How many tokens the answer may have: what was asked for, or what is left of the context.

    Raises:
        TriptychError: context_length_exceeded, with the numbers; its param is what would have to change.
    """
    left = context_tokens - prompt_tokens
    limit = "max_completion_tokens" if request.max_completion_tokens else "max_tokens"
    asked: int | None = getattr(request, limit)
    if left < (asked or 1):
        wanted = f" ({prompt_tokens} in the messages, {asked} in the completion)" if asked else " in the messages"
        what = (
            f"'{limit}' to at most {left}, or the length of the messages" if left > 0 else "the length of the messages"
        )
        raise TriptychError(
            "context_length_exceeded",
            f"This model's maximum context length is {context_tokens} tokens. However, you requested "
            f"{prompt_tokens + (asked or 0)} tokens{wanted}. Please reduce {what}.",
            param=limit if left > 0 else "messages",
        )
    most = asked or left
    if (request.min_tokens or 0) > most:
        raise _invalid("min_tokens", f"must be at most the {most} tokens the answer may have")
    return most


def _refuse_unsupported(request: ChatRequest) -> None:
    for name in UNSUPPORTED:
        if getattr(request, name) is not None:
            raise unsupported(name)
    if request.tool_choice not in (None, "none"):
        raise unsupported("tool_choice")
    if request.parallel_tool_calls is not None:
        raise _invalid("parallel_tool_calls", "is only allowed together with 'tools'")
    if request.store:
        raise unsupported("store", "nothing is stored, so only false is possible")
    if request.service_tier not in (None, "auto", "default"):
        raise unsupported("service_tier", "there is one tier, 'auto' or 'default'")
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        raise unsupported("stream_options.include_obfuscation")


def _check_message(message: ChatMessage, where: str) -> None:
    if not isinstance(message, AssistantMessage):
        return
    for name in ("annotations", "tool_calls", "function_call"):
        # SDKs give back the message they got, empty lists included.
        if getattr(message, name) not in (None, []):
            raise unsupported(f"{where}.{name}")
    if message.content is None and message.refusal is None and message.audio is None:
        param = f"{where}.content"
        raise TriptychError("missing_parameter", f"Missing required parameter: '{param}'.", param=param)


def _check_fit(request: ChatRequest) -> None:
    """Parameters that only make sense together, or not together."""
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise _invalid("max_tokens", "cannot be set together with 'max_completion_tokens'")
    if request.top_logprobs is not None and not request.logprobs:
        raise _invalid("top_logprobs", "is only allowed when 'logprobs' is true")
    if request.stream_options is not None and not request.stream:
        raise _invalid("stream_options", "is only allowed when 'stream' is true")


def _check_model(request: ChatRequest, manifest: Manifest) -> None:
    limits = manifest.limits
    if (request.n or 1) > limits.max_n:
        raise _invalid("n", f"must be at most {limits.max_n} for this model")
    if (request.top_logprobs or 0) > limits.max_logprobs:
        raise _invalid("top_logprobs", f"must be at most {limits.max_logprobs} for this model")
    if request.logprobs and "logprobs" not in manifest.capabilities:
        raise unsupported("logprobs", "this model gives none")
    if not isinstance(request.response_format, TextFormat | None) and "json" not in manifest.capabilities:
        raise unsupported("response_format", "this model can only do 'text'")


def _check_bias(request: ChatRequest, vocab_size: int) -> None:
    for token in request.logit_bias or ():
        if not (token.isascii() and token.isdigit() and len(token) <= 10 and int(token) < vocab_size):
            raise _invalid("logit_bias", f"has {token[:20]!r}, which is no token id between 0 and {vocab_size - 1}")


def _invalid(param: str, why: str) -> TriptychError:
    return TriptychError("invalid_request", f"Invalid value for '{param}': it {why}.", param=param)
