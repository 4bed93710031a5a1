"""An answer on its way to the client: whole, or as a stream of server-sent events."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from litestar.types import Message, Send

from gateway import errors
from gateway.errors import Headers
from gateway.reply import Body, Chunks, error_line
from infra.ports import Subscription
from schemas.errors import TriptychError
from schemas.events import Cancelled, Event, Failed, Finished, Terminal, Token

# The status line waits for the first event, so that an error before it has its real status; but not for ever, because
# proxies and clients give up on a silent connection.
HOLD_HEADERS_S = 10.0
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
]


class Answer(Protocol):
    """Written to by one exchange; `last` is the terminal event once it has come."""

    last: Terminal | None

    async def pass_on(self, subscription: Subscription) -> None:
        """Write everything up to the terminal event.

        Raises:
            TriptychError: the request has failed and nothing has told the client; `fail` does.
        """
        ...

    async def fail(self, error: TriptychError) -> None:
        """Tell the client the error in the way that is still open, and end. Nothing happens after a complete answer."""
        ...


class Streamed:
    """`on_first_token` is called when the first token is about to be written."""

    def __init__(self, send: Send, chunks: Chunks, on_first_token: Callable[[], None]) -> None:
        self.last: Terminal | None = None
        self._send = send
        self._chunks = chunks
        self._on_first_token = on_first_token
        self._waiting_for_first = True
        self._headers_sent = False
        self._closed = False

    async def pass_on(self, subscription: Subscription) -> None:
        while self.last is None:
            events = await take(subscription, KEEP_ALIVE_S if self._headers_sent else HOLD_HEADERS_S)
            if events:
                await self._write(events)
            else:
                await self._start()
                await self._body(KEEP_ALIVE)

    async def _write(self, events: list[Event]) -> None:
        first, last = events[0], events[-1]
        if isinstance(last, Finished | Failed | Cancelled):
            self.last = last
        if isinstance(first, Failed | Cancelled) and not self._headers_sent:
            raise errors.from_event(first)
        if self._waiting_for_first and any(isinstance(event, Token) for event in events):
            self._waiting_for_first = False
            self._on_first_token()
        if lines := self._chunks.encode(events):
            await self._start()
            await self._body(lines, more=self.last is None)

    async def fail(self, error: TriptychError) -> None:
        if self._headers_sent:
            await self._body(error_line(error), more=False)
        else:
            await send_error(self._send, error)

    async def _start(self) -> None:
        if not self._headers_sent:
            self._headers_sent = True
            await self._put({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})

    async def _body(self, body: bytes, more: bool = True) -> None:
        await self._put({"type": "http.response.body", "body": body, "more_body": more})
        self._closed = self._closed or not more

    async def _put(self, message: Message) -> None:
        """Send, unless an earlier send was broken off: a client may miss the end of a stream, never its middle."""
        if not self._closed:
            self._closed = True
            await self._send(message)
            self._closed = False


class Whole:
    """`extra_headers` makes headers of the terminal event; `on_first_token` is called when the first one has come."""

    def __init__(
        self,
        send: Send,
        body: Body,
        on_first_token: Callable[[], None],
        extra_headers: Callable[[Finished], Headers],
    ) -> None:
        self.last: Terminal | None = None
        self._send = send
        self._body = body
        self._on_first_token = on_first_token
        self._extra_headers = extra_headers
        self._waiting_for_first = True

    async def pass_on(self, subscription: Subscription) -> None:
        while self.last is None:
            events = [await _first(subscription), *subscription.ready()]
            if self._waiting_for_first and any(isinstance(event, Token) for event in events):
                self._waiting_for_first = False
                self._on_first_token()
            self._body.add(events)
            if isinstance(events[-1], Finished | Failed | Cancelled):
                self.last = events[-1]
        if isinstance(self.last, Failed | Cancelled):
            raise errors.from_event(self.last)
        body = self._body.encode(self.last.usage)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send_response(self._send, 200, headers + self._extra_headers(self.last), body)

    async def fail(self, error: TriptychError) -> None:
        await send_error(self._send, error)


async def take(subscription: Subscription, within_s: float) -> list[Event]:
    """What has arrived: at least one event; nothing after `within_s` of silence."""
    try:
        async with asyncio.timeout(within_s):
            first = await _first(subscription)
    except TimeoutError:
        return []
    return [first, *subscription.ready()]


async def _first(subscription: Subscription) -> Event:
    try:
        return await anext(subscription)
    except StopAsyncIteration:
        raise TriptychError("internal", "The answer stopped without an end.") from None


async def send_response(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_error(send: Send, error: TriptychError) -> None:
    await send_response(send, *errors.response_of(error))
