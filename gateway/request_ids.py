"""An `x-request-id` on every response, whoever writes it: routes, errors, documentation, preflights."""

import os
import re
from collections.abc import Iterable

from litestar.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"
# A client's own id is kept if it can stand in a header, a log line and a URL as it is.
_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


def of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The client's own, or a new one."""
    given = next((value for name, value in headers if name == HEADER), b"")
    return given if _SANE.fullmatch(given) else os.urandom(16).hex().encode()


class RequestIds:
    """Wraps an ASGI app; the app finds the id in `scope["state"]["request_id"]`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = of(scope["headers"])
        scope["state"] = {**scope.get("state", {}), "request_id": request_id.decode()}

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (HEADER, request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)
