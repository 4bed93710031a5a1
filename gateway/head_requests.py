"""HEAD is GET without the body, on every route that has GET (RFC 9110, 9.3.2)."""

from collections.abc import Coroutine
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """Wraps an ASGI app that knows no HEAD, but for paths that begin with `own`.

    The server drops the body, whose length the header still says.
    """

    def __init__(self, app: ASGIApp, own: str) -> None:
        self._app = app
        self._own = own

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """Of other requests, the app's own coroutine: they pay one call."""
        if scope.get("method") == "HEAD" and not scope["path"].startswith(self._own):
            return self._head(scope, send)
        return self._app(scope, receive, send)  # type: ignore[return-value]  # an ASGI app is a coroutine function

    async def _head(self, scope: Scope, send: Send) -> None:
        begun = False

        async def send_head(message: Message) -> None:
            """The answer is over with its head; nothing that would be dropped is waited for."""
            nonlocal begun
            if message["type"] == "http.response.start" and not begun:
                begun = True
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def gone() -> Any:
            """What a stream listens for; it ends there."""
            return {"type": "http.disconnect"}

        as_get: Any = {**scope, "method": "GET"}
        await self._app(as_get, gone, send_head)
