"""HTTP/1 as real clients speak it, and hostile ones: uvicorn's protocol on httptools, mended where it falls short.

* An offer to change the protocol is not taken up; the request is served as if it had not been made (RFC 9110, 7.8).
  Java's stock client offers `h2c` with every request, and httptools then takes the body for the other protocol's.
* To an HTTP/1.0 client a body of unknown length ends with the connection: it cannot read chunks.
* A head has at most so many bytes, fields and seconds; a body so many seconds in all, and between two pieces of it.
* Trailers are dropped: they must not become header fields of a request that has been looked at already.
* What is refused here is refused in OpenAI's shape, and never inside of another answer.

A request that arrives in one piece starts no timer here.
"""

import asyncio
import logging
from typing import Any, Literal

import httptools
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway import errors, http_bodies, http_heads, request_ids
from gateway.http_heads import WireLimits
from schemas.errors import TriptychError

log = logging.getLogger(__name__)

# How long a connection whose request was refused is read on: closing it on unread bytes would send a reset, which can
# overtake the answer.
LINGER_S = 2.0
# Requests behind the one that is being answered, before the connection is not read on.
MOST_WAITING = 16


class WireConfig(uvicorn.Config):
    """uvicorn's configuration, for this protocol."""

    def __init__(self, app: Any, limits: WireLimits, **options: Any) -> None:
        super().__init__(app, http=HttpProtocol, **options)
        self.limits = limits


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: WireConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self._reading: Literal["", "head", "body"] = ""  # what of a request has come in part
        self._answering: RequestResponseCycle | None = None  # whose turn it is; `cycle` is the one that came last
        self._hosts = 0
        self._count_head = False  # it may be too large
        self._declined = False  # the head just read offers another protocol
        self._deaf = False  # whatever still comes is dropped
        # Of pieces that brought nothing but a part of a head, of a trailer or of what stands between chunks.
        self._barren_bytes = 0
        self._progressed = False  # this piece brought more than that
        self._began_s = 0.0  # when the first piece of this head, or of this body, came; 0 = not yet
        self._heard_s = 0.0
        self._watchdog: asyncio.TimerHandle | None = None

    # Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        # For one who connects and says nothing; the first byte unsets it. After each answer uvicorn has its own.
        self.timeout_keep_alive_task = self.loop.call_later(self._limits.head_s, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._answering is not None:  # uvicorn has told the one that came last, which may not have had its turn yet
            _hang_up(self._answering)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._count_head = self._reading == "head" or len(data) > self._limits.head_bytes
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, TriptychError) else _not_http(error))
            return
        if self._reading:
            self._watch(len(data))

    def _feed(self, data: bytes | memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                # The parser has stopped behind the head. A new one reads it again, without the offer, and goes on.
                data = memoryview(data)[offer.args[0] :]
                version = self.parser.get_http_version().encode()
                first_line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
                head = http_heads.without_offer(first_line, self.headers)
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self._declined = False
                self.parser.feed_data(head)

    # Called by the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading, self._progressed = "head", True
        self._began_s, self._hosts = 0.0, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading != "head":
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Raises TriptychError, which the parser passes on inside of its own error."""
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._declined = True
            return
        if self.parser.should_upgrade():
            raise TriptychError("method_not_allowed", "This is no proxy: CONNECT is not possible.")
        version = self.parser.get_http_version()
        self._limits.check(version, self._hosts, self.headers)
        if self._count_head:
            self._limits.check_size(self.url, self.headers)
        if version != "1.1":
            self.expect_100_continue = False  # such a client does not know of it
        self._reading, self._progressed, self._began_s = "body", True, 0.0
        super().on_headers_complete()
        if 0 < len(self.pipeline) <= MOST_WAITING:
            # uvicorn stops reading here, and would not see the client of the answer under way go.
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._declined:
            return
        self._reading = ""
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        if cycle.scope["http_version"] != "1.1":
            app = http_bodies.until_close(cycle, app)
        elif cycle.waiting_for_100_continue:
            app = http_bodies.asked_for(cycle, app)
        super()._start_asgi_task(cycle, app)

    # Time.

    def _watch(self, size_bytes: int) -> None:
        """A request has come in part: how much has come without getting anywhere, and for how long may it go on?"""
        self._barren_bytes = 0 if self._progressed else self._barren_bytes + size_bytes
        self._progressed = False
        if self._barren_bytes > self._limits.head_bytes:
            self._refuse(self._limits.too_large())
            return
        self._heard_s = self.loop.time()
        self._began_s = self._began_s or self._heard_s
        if self._watchdog is None:
            self._watchdog = self.loop.call_at(self._due_s(), self._look)

    def _due_s(self) -> float:
        if self._reading == "head":
            return self._began_s + self._limits.head_s
        return min(
            self._began_s + self._limits.time_for_body_s(self.parser.get_method(), self.headers),
            self._heard_s + self._limits.idle_s,
        )

    def _look(self) -> None:
        self._watchdog = None
        if not self._reading or self._deaf:
            return
        if self.flow.read_paused:  # it is not the client that we wait for
            self._began_s = self._heard_s = self.loop.time()
        due_s = self._due_s()
        if due_s > self.loop.time():
            self._watchdog = self.loop.call_at(due_s, self._look)
            return
        self._refuse(TriptychError("request_timeout", f"The {self._reading} of the request did not arrive in time."))

    # The end.

    def _refuse(self, error: TriptychError) -> None:
        """Answer what is being read, unless somebody is being answered, and close."""
        log.info("a request is refused: %s", error.message)
        cycle, self._deaf = self._answering, True
        body_of_it = self._reading == "body" and cycle is self.cycle
        if cycle is not None and not cycle.response_complete and not body_of_it:
            # Of an earlier request, and whole: it gets its answer, what comes after it none.
            cycle.keep_alive = False
            return
        if cycle is not None and body_of_it:
            answered = cycle.response_started
            _hang_up(cycle)
            if answered:
                self.transport.close()
                return
        status, headers, body = errors.response_of(error)
        headers += [(request_ids.HEADER, request_ids.of(self.headers or ())), (b"connection", b"close")]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self.transport.write_eof()
        self.flow.resume_reading()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(LINGER_S, self.timeout_keep_alive_handler)


def _hang_up(cycle: RequestResponseCycle) -> None:
    """Tell the application that nobody is there any more."""
    cycle.disconnected = not cycle.response_complete
    cycle.message_event.set()


def _not_http(error: httptools.HttpParserError) -> TriptychError:
    inside = isinstance(error, httptools.HttpParserCallbackError)
    why = "its target cannot be read" if inside else str(error)
    return TriptychError("invalid_request", f"This is no valid HTTP request: {why}.")
