"""What a request may hold before anybody has looked into it: a place among the open ones, and bytes of its body.

Admission is asked for when a body is about to be read, inside of the application, so that a refusal is an ordinary
answer. Place and bytes are given back when the request has been answered: until then its body, or what was made of it,
is in memory.
"""

from collections.abc import Collection, Coroutine, Iterable
from typing import Any

from litestar.types import ASGIApp, Receive, ReceiveMessage, Scope, Send

from gateway.exchange import RETRY_AFTER_S, OpenRequests
from schemas.errors import TriptychError

# What is held of a form whose file is stored while it comes: the most that infra/blob_stream.py does.
STREAMED_BYTES = 10 << 20
# Requests without media are small. The last quarter of the room is theirs.
SMALL_BYTES = 1 << 20
_WITH_BODY = ("POST", "PUT", "PATCH")


class BodyRoom:
    """Bytes of all the bodies that this gateway holds, `most_bytes` at most."""

    def __init__(self, most_bytes: int) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes

    def take(self, size_bytes: int, whole_bytes: int) -> None:
        """`size_bytes` more for a body that has `whole_bytes` with them, as far as is known.

        Raises:
            TriptychError: rate_limited, when there is no room for them.
        """
        room_bytes = self._most_bytes if whole_bytes <= SMALL_BYTES else largest(self._most_bytes)
        if self.held_bytes + size_bytes > room_bytes:
            message = "The requests that this gateway is answering are too large to take in another; please try again."
            raise TriptychError("rate_limited", message, retry_after_s=RETRY_AFTER_S)
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes


def largest(most_bytes: int) -> int:
    """The largest body that fits into so much room."""
    return most_bytes - most_bytes // 4


class Admission:
    """Wraps an ASGI app. `forms`: paths where forms are read piece by piece; `uploads`: what paths begin with where any
    body is."""

    def __init__(
        self, app: ASGIApp, open_requests: OpenRequests, room: BodyRoom, forms: Collection[str], uploads: str
    ) -> None:
        self._app = app
        self._open = open_requests
        self._room = room
        self._forms = forms
        self._uploads = uploads

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        if scope.get("method") in _WITH_BODY:
            return self._admitted(scope, receive, send)
        return self._app(scope, receive, send)  # type: ignore[return-value]  # an ASGI app is a coroutine function

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        size_bytes, form = announced(scope["headers"])
        path = scope["path"]
        bounded = path.startswith(self._uploads) or (form and path.rstrip("/") in self._forms)
        share = _Share(self._open, self._room, receive, size_bytes, STREAMED_BYTES if bounded else None)
        try:
            await self._app(scope, share.receive, send)
        finally:
            share.give_back()


class _Share:
    """What one request holds. `most_bytes` of its body at a time, if that is not all of it."""

    def __init__(
        self,
        open_requests: OpenRequests,
        room: BodyRoom,
        receive: Receive,
        size_bytes: int | None,
        most_bytes: int | None,
    ) -> None:
        self._open = open_requests
        self._room = room
        self._receive = receive
        self._size_bytes = size_bytes
        self._most_bytes = most_bytes
        self._admitted = False
        self._held_bytes = 0

    async def receive(self) -> ReceiveMessage:
        """ASGI's, of the application. Raises TriptychError: rate_limited."""
        if not self._admitted:
            self._open.enter()
            self._admitted = True
            if self._size_bytes is not None:
                self._take(self._size_bytes)
        message = await self._receive()
        if self._size_bytes is None and message["type"] == "http.request":
            self._take(len(message["body"]))
        return message

    def _take(self, size_bytes: int) -> None:
        if self._most_bytes is not None:
            size_bytes = min(size_bytes, self._most_bytes - self._held_bytes)
        self._room.take(size_bytes, self._held_bytes + size_bytes)
        self._held_bytes += size_bytes

    def give_back(self) -> None:
        self._room.give_back(self._held_bytes)
        if self._admitted:
            self._open.leave()


def announced(headers: Iterable[tuple[bytes, bytes]]) -> tuple[int | None, bool]:
    """What a head says of its body: the bytes it has, if it does say that, and whether it is a form.

    The server has seen to it that there is one length at most, and that it is a number.
    """
    size_bytes, form = None, False
    for name, value in headers:
        if name == b"content-length":
            size_bytes = int(value)
        elif name == b"content-type":
            form = value[:19].lower() == b"multipart/form-data"
    return size_bytes, form
