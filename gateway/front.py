"""Chat completions past the framework's layers, which cost a tenth of all that the gateway does about one.

Only what needs nothing of them: a body of known and allowed size, from no browser (whose answer bears CORS headers).
Everything else goes through, chat completions too; what they mean is decided in gateway/chat.py for both.
"""

from collections.abc import Mapping

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway import decode, errors
from gateway.answer import send_error
from gateway.chat import PATH, Chat
from gateway.desk import Timeouts
from schemas.errors import TriptychError


class Front:
    """Wraps the framework's application; inside of RequestIds."""

    def __init__(self, framework: ASGIApp, chat: Chat, timeouts: Timeouts, max_body_bytes: int) -> None:
        self._framework = framework
        self._chat = chat
        self._timeouts = timeouts
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["path"] == PATH and scope["method"] == "POST":
            headers: dict[str, str] = {}
            for name, value in scope["headers"]:
                headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
            if self._needs_nothing(headers):
                await self._answer(headers, scope, receive, send)
                return
        await self._framework(scope, receive, send)

    def _needs_nothing(self, headers: Mapping[str, str]) -> bool:
        length = headers.get("content-length", "")
        return length.isdecimal() and int(length) <= self._max_body_bytes and "origin" not in headers

    async def _answer(self, headers: Mapping[str, str], scope: Scope, receive: Receive, send: Send) -> None:
        try:
            content_type = headers.get("content-type", "")
            decode.check_type(content_type)
            asked = decode.chat_request(await _body(receive), content_type)
            await self._chat.answer(asked, self._timeouts.caller(headers, scope), receive, send)
        except Exception as error:  # noqa: BLE001 - from_exception logs what is not a client's fault
            await send_error(send, errors.from_exception(error))


async def _body(receive: Receive) -> bytes:
    """Raises TriptychError: cancelled, when the client goes away inside of it."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise TriptychError("cancelled", "The client went away inside its request.")
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)
