"""The error tree: one table of code -> HTTP status, type, retriable.

    TriptychError
    |- 4xx  the caller must change something       (never retried by us)
    `- 5xx  we, a worker or time is the cause      (retriable says whether another attempt can help)

Over HTTP an error is OpenAI's `{"error": {message, type, param, code}}`; in the event stream it is `events.Failed`;
on a topic it is a dead letter. All three carry the same code.
"""

from typing import Literal

import msgspec

Code = Literal[
    "invalid_json",
    "invalid_request",
    "missing_parameter",
    "unknown_parameter",
    "unsupported_parameter",
    "context_length_exceeded",
    "media_unreachable",
    "media_refused",
    "media_too_large",
    "media_too_long",
    "media_too_many",
    "media_unreadable",
    "media_type_unsupported",
    "not_drawn",
    "key_required",
    "file_not_found",
    "model_not_found",
    "not_found",
    "method_not_allowed",
    "request_timeout",
    "request_too_large",
    "headers_too_large",
    "unsupported_media_type",
    "rate_limited",
    "cancelled",
    "engine_died",
    "worker_lost",
    "too_many_attempts",
    "engine_no_end",
    "replay_lost",
    "internal",
    "artifact_missing",
    "decoder_failed",
    "pool_unavailable",
    "overloaded",
    "deadline_exceeded",
]


class Fault(msgspec.Struct, frozen=True):
    """What a code means to the two who see it: the client (status, type) and the retry logic (retriable)."""

    status: int
    type: str
    retriable: bool = False


_BAD, _LIMIT, _SERVER = "invalid_request_error", "rate_limit_error", "server_error"

FAULTS: dict[Code, Fault] = {
    "invalid_json": Fault(400, _BAD),
    "invalid_request": Fault(400, _BAD),
    "missing_parameter": Fault(400, _BAD),
    "unknown_parameter": Fault(400, _BAD),
    "unsupported_parameter": Fault(400, _BAD),
    "context_length_exceeded": Fault(400, _BAD),
    "media_unreachable": Fault(400, _BAD),  # the URL does not answer, or not in time
    "media_refused": Fault(400, _BAD),  # we do not go there: scheme, private address, too many redirects
    "media_too_large": Fault(400, _BAD),  # bytes, pixels, frames
    "media_too_long": Fault(400, _BAD),  # seconds
    "media_too_many": Fault(400, _BAD),  # items in one request
    "media_unreadable": Fault(400, _BAD),  # broken, empty or cut off
    "media_type_unsupported": Fault(400, _BAD),  # by its bytes, not by its name
    "not_drawn": Fault(400, _BAD),  # the model was asked for pictures and answered without, or with fewer
    "key_required": Fault(401, _BAD),  # of whom does it ask? A key that everybody has is nobody's
    "file_not_found": Fault(404, _BAD),
    "model_not_found": Fault(404, _BAD),
    "not_found": Fault(404, _BAD),
    "method_not_allowed": Fault(405, _BAD),
    "request_timeout": Fault(408, _BAD, retriable=True),  # it was sent too slowly, or not to its end
    "request_too_large": Fault(413, _BAD),
    "headers_too_large": Fault(431, _BAD),
    "unsupported_media_type": Fault(415, _BAD),
    "rate_limited": Fault(429, _LIMIT, retriable=True),
    # nginx's "client closed request": nobody is left to read it, but logs and batch results are.
    "cancelled": Fault(499, _BAD),
    "engine_died": Fault(500, _SERVER, retriable=True),
    "worker_lost": Fault(500, _SERVER, retriable=True),
    "too_many_attempts": Fault(500, _SERVER),
    "engine_no_end": Fault(500, _SERVER),
    "replay_lost": Fault(500, _SERVER),
    "internal": Fault(500, _SERVER),
    "artifact_missing": Fault(503, _SERVER, retriable=True),  # gone from the store before the prompt was assembled
    "decoder_failed": Fault(500, _SERVER),
    "pool_unavailable": Fault(503, _SERVER, retriable=True),  # nobody works in a pool that the request needs
    "overloaded": Fault(503, _SERVER, retriable=True),
    "deadline_exceeded": Fault(504, _SERVER),
}


class TriptychError(Exception):
    """An error that knows what the client sees and whether another attempt can help."""

    def __init__(self, code: Code, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def fault(self) -> Fault:
        return FAULTS[self.code]


class ErrorDetail(msgspec.Struct, frozen=True):
    """OpenAI's error object; all four keys are always present, as the SDKs expect."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorDetail


def body_of(error: TriptychError) -> ErrorBody:
    """The one translation from our error to OpenAI's body."""
    return ErrorBody(ErrorDetail(error.message, error.fault.type, error.param, error.code))
