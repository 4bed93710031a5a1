"""An answer on its way to the client: whole, or as a stream of server-sent events."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from gateway import errors
from gateway.delivery import Piece, Told
from gateway.errors import Headers
from gateway.reply import error_line
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed, Finished, Terminal, Token, Transcript, Usage

# The status line waits for the first event, so that an error before it has its real status; but not for ever, because
# proxies and clients give up on a silent connection.
HOLD_HEADERS_S = 10.0
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"

_CONTENT = (Token, Piece, Transcript)

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
]


class Stream(Protocol):
    """What is told of one request: a ports.Subscription, or with the pieces of its parts."""

    async def __anext__(self) -> Told: ...

    def ready(self) -> Sequence[Told]: ...


class Encoder(Protocol):
    """Makes lines of an event stream. Raises TriptychError when what it is told cannot be told on."""

    def encode(self, events: Iterable[Told]) -> bytes: ...


class Collector(Protocol):
    """Makes one body of everything."""

    def add(self, events: Iterable[Told]) -> None: ...

    def encode(self, usage: Usage) -> bytes:
        """Raises TriptychError: what was told is no answer."""
        ...


class Answer(Protocol):
    """Written to by one exchange; `last` is the terminal event once it has come."""

    last: Terminal | None

    async def pass_on(self, stream: Stream) -> None:
        """Write everything up to the terminal event.

        Raises:
            TriptychError: the request has failed and nothing has told the client; `fail` does.
        """
        ...

    async def fail(self, error: TriptychError) -> None:
        """Tell the client the error in the way that is still open, and end. Nothing happens after a complete answer."""
        ...


class StreamedBody:
    """A response that is sent as it comes into being.

    After a message whose sending was broken off, none is sent: a client may miss the end of a stream, never its middle.
    """

    def __init__(self, send: Send, headers: Headers) -> None:
        self.begun = False
        self._send = send
        self._headers = headers
        self._closed = False

    async def write(self, data: bytes, more: bool = True) -> None:
        if not self.begun:
            self.begun = True
            await self._put({"type": "http.response.start", "status": 200, "headers": list(self._headers)})
        await self._put({"type": "http.response.body", "body": data, "more_body": more})
        self._closed = self._closed or not more

    async def fail(self, error: TriptychError, line: bytes | None) -> None:
        """With the error's own status, if there is time; else its line ends the body; without one, that breaks off."""
        if not self.begun:
            await send_error(self._send, error)
        elif line is not None:
            await self.write(line, more=False)

    async def _put(self, message: Message) -> None:
        if not self._closed:
            self._closed = True
            await self._send(message)
            self._closed = False


class Streamed:
    """`on_first_token` is called when the first token is about to be written."""

    def __init__(self, send: Send, chunks: Encoder, on_first_token: Callable[[], None]) -> None:
        self.last: Terminal | None = None
        self._body = StreamedBody(send, STREAM_HEADERS)
        self._chunks = chunks
        self._on_first_token = on_first_token
        self._waiting_for_first = True

    async def pass_on(self, stream: Stream) -> None:
        while self.last is None:
            events = await take(stream, KEEP_ALIVE_S if self._body.begun else HOLD_HEADERS_S)
            if events:
                await self._write(events)
            else:
                await self._body.write(KEEP_ALIVE)

    async def _write(self, events: list[Told]) -> None:
        last = events[-1]
        if isinstance(last, Finished | Failed | Cancelled):
            self.last = last
        if isinstance(last, Failed | Cancelled) and not self._body.begun and not _has_content(events):
            raise errors.from_event(last)
        if self._waiting_for_first and _has_content(events):
            self._waiting_for_first = False
            self._on_first_token()
        if lines := self._chunks.encode(events):
            await self._body.write(lines, more=self.last is None)

    async def fail(self, error: TriptychError) -> None:
        await self._body.fail(error, error_line(error))


class Whole:
    """`extra_headers` makes headers of the terminal event; `on_first_token` is called when the first one has come."""

    def __init__(
        self,
        send: Send,
        body: Collector,
        on_first_token: Callable[[], None],
        extra_headers: Callable[[Finished], Headers],
        media_type: bytes = b"application/json",
    ) -> None:
        self.last: Terminal | None = None
        self._send = send
        self._body = body
        self._on_first_token = on_first_token
        self._extra_headers = extra_headers
        self._media_type = media_type
        self._waiting_for_first = True

    async def pass_on(self, stream: Stream) -> None:
        while self.last is None:
            events = [await next_of(stream), *stream.ready()]
            if self._waiting_for_first and _has_content(events):
                self._waiting_for_first = False
                self._on_first_token()
            self._body.add(events)
            if isinstance(events[-1], Finished | Failed | Cancelled):
                self.last = events[-1]
        if isinstance(self.last, Failed | Cancelled):
            raise errors.from_event(self.last)
        body = self._body.encode(self.last.usage)
        headers = [(b"content-type", self._media_type), (b"content-length", b"%d" % len(body))]
        await send_response(self._send, 200, headers + self._extra_headers(self.last), body)

    async def fail(self, error: TriptychError) -> None:
        await send_error(self._send, error)


def answering(write: Callable[[Receive, Send], Awaitable[None]]) -> ASGIApp:
    """An application that leaves the answer of one exchange, and notice of the client's leaving, to this function."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await write(receive, send)

    return app


async def take(stream: Stream, within_s: float) -> list[Told]:
    """What has arrived: at least one event; nothing after `within_s` of silence."""
    try:
        async with asyncio.timeout(within_s):
            first = await next_of(stream)
    except TimeoutError:
        return []
    return [first, *stream.ready()]


async def next_of(stream: Stream) -> Told:
    """The next one. Raises TriptychError: internal, when there is none though the end has not been told."""
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        raise TriptychError("internal", "The answer stopped without an end.") from None


def _has_content(events: Sequence[Told]) -> bool:
    return any(isinstance(event, _CONTENT) for event in events)


async def send_response(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_error(send: Send, error: TriptychError) -> None:
    await send_response(send, *errors.response_of(error))
