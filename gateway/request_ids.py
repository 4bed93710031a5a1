"""What an exchange is called, on every response, whoever writes it: routes, errors, documentation, preflights.

`x-request-id` is the client's word for it, or ours where it has none. `x-triptych-request-id` is our id of the work
that it asks for, which nobody can guess: errors and streams have it, too.
"""

import os
import re
from collections.abc import Iterable

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"
WORK_HEADER = b"x-triptych-request-id"
# A client's own id is kept if it can stand in a header, a log line and a URL as it is.
_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Ids(msgspec.Struct):
    """Of one exchange. `work_id` is filled in by whoever begins to work for it."""

    request_id: str
    chosen: bool = False  # by the client: others may know it, guess it or use it as well
    work_id: str = ""


def of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The client's own, or a new one."""
    return _chosen(headers) or os.urandom(16).hex().encode()


def _chosen(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    given = next((value for name, value in headers if name == HEADER), b"")
    return given if _SANE.fullmatch(given) else b""


class RequestIds:
    """Wraps an ASGI app; the app finds the Ids in `scope["state"]["ids"]`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = _chosen(scope["headers"])
        request_id = chosen or of(())
        ids = Ids(request_id.decode(), bool(chosen))
        scope["state"] = {**scope.get("state", {}), "ids": ids}

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                work = [(WORK_HEADER, ids.work_id.encode())] if ids.work_id else []
                message["headers"] = [*message["headers"], (HEADER, request_id), *work]
            await send(message)

        await self._app(scope, receive, send_with_id)
