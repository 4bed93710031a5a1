"""The only mapper from an error to what a client sees, over HTTP or inside a stream."""

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException, MethodNotAllowedException, NotFoundException

from infra.faults import Unavailable
from schemas import codec
from schemas.errors import FAULTS, Code, TriptychError, body_of
from schemas.events import Cancelled, Failed

log = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]

# Litestar's own refusals, by status; any other 4xx of it is an invalid request.
_BY_STATUS: dict[int, Code] = {
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
}


def from_event(event: Failed | Cancelled) -> TriptychError:
    """The error that a terminal event tells."""
    if isinstance(event, Cancelled):
        return TriptychError("cancelled", f"The request was cancelled: {event.reason or 'no reason given'}.")
    for code in FAULTS:
        if code == event.code:
            return TriptychError(code, event.message, param=event.param)
    # A newer worker's code: what it means is unknown here, but its words are not.
    return TriptychError("internal", event.message, param=event.param)


def from_exception(error: Exception) -> TriptychError:
    """What a client may know of any error; one that we did not foresee is logged here and shown as `internal`."""
    match error:
        case TriptychError():
            return error
        case InternalServerException(detail="client disconnected prematurely"):
            return TriptychError("cancelled", "The client went away inside its request.")
        case HTTPException(status_code=status) if status < 500:
            return TriptychError(_BY_STATUS.get(status, "invalid_request"), error.detail)
        case Unavailable():
            log.error("a service does not answer: %s", error)
            return TriptychError("overloaded", "A service behind the gateway does not answer.", retry_after_s=1)
        case _:
            log.error("unexpected error", exc_info=error)
            return TriptychError("internal", "The gateway failed on this request.")


def response_of(error: TriptychError) -> tuple[int, Headers, bytes]:
    """Status, headers and body."""
    body = codec.to_json(body_of(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after_s))
    if error.fault.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.fault.status >= 500 and not error.fault.retriable:
        # The SDKs try any 5xx again unless told otherwise.
        headers.append((b"x-should-retry", b"false"))
    return error.fault.status, headers, body


def handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's exception handler, for everything raised outside the exchange of a chat completion."""
    known = from_exception(error)
    if isinstance(error, NotFoundException):
        known = TriptychError("not_found", f"Unknown request URL: {request.method} {request.url.path}.")
    if isinstance(error, MethodNotAllowedException):
        known = TriptychError("method_not_allowed", f"Not allowed to {request.method} on {request.url.path}.")
    status, headers, body = response_of(known)
    names = {name.decode(): value.decode() for name, value in headers if name != b"content-length"}
    if isinstance(error, MethodNotAllowedException) and error.headers:
        names["allow"] = error.headers["allow"]
    return Response(body, status_code=status, headers=names, media_type="application/json")


def unsupported(param: str, why: str = "") -> TriptychError:
    """The refusal of a parameter that is known and cannot be honoured."""
    reason = f": {why}" if why else ""
    return TriptychError("unsupported_parameter", f"Unsupported parameter: '{param}'{reason}.", param=param)
