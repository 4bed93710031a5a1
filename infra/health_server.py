"""A worker's /healthz, /readyz and /metrics: a tiny HTTP server, so that a worker needs no web framework."""

import asyncio
from collections.abc import Callable

from infra.metrics import CONTENT_TYPE, Metrics

MAX_REQUEST_BYTES = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
PLAIN = "text/plain; charset=utf-8"

Answer = tuple[str, str, bytes]  # status line, content type, body


class HealthServer:
    """`unready` tells what is missing for serving; empty = ready. `port` 0 takes a free one."""

    def __init__(self, host: str, port: int, metrics: Metrics, unready: Callable[[], list[str]]) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._unready = unready
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port in use; the wanted one before `start`."""
        return self._port

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MAX_REQUEST_BYTES)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                status, content_type, body = self._answer(request)
                head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
                writer.write(f"{head}connection: close\r\n\r\n".encode() + (b"" if request[:5] == b"HEAD " else body))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks so slowly, so much or not at all gets no answer
        finally:
            writer.close()

    def _answer(self, request: bytes) -> Answer:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return "405 Method Not Allowed", PLAIN, b"only GET and HEAD\n"
        match path:
            case b"/healthz":
                return "200 OK", PLAIN, b"ok\n"
            case b"/readyz":
                missing = self._unready()
                if missing:
                    return "503 Service Unavailable", PLAIN, ("\n".join(missing) + "\n").encode()
                return "200 OK", PLAIN, b"ready\n"
            case b"/metrics":
                return "200 OK", CONTENT_TYPE, self._metrics.render()
        return "404 Not Found", PLAIN, b"/healthz, /readyz or /metrics\n"
