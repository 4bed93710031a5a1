"""The HTTP server's life: accept, and on the way out let open streams finish, within one deadline."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator

import uvicorn
from litestar.types import ASGIApp

from gateway.exchange import OpenRequests
from gateway.http_heads import WireLimits
from gateway.http_protocol import WireConfig
from infra.lifecycle import Life

log = logging.getLogger(__name__)

BACKLOG = 4_096
KEEP_ALIVE_S = 75
# After the drain's deadline, how long the error events of the streams that are cut may take to be written.
LAST_WORDS_S = 5.0


class PortTaken(Exception):
    """The listen address cannot be had; the message says which and why."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; port 0 takes a free one. Several processes of one user may have a `shared` one.

    Raises:
        PortTaken: somebody else has it, or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortTaken(f"cannot listen on {host}:{port}: {error.strerror}; TRIPTYCH_PORT chooses another") from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn that says when it listens, and leaves the process's signal handlers alone."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    limits: WireLimits,
    open_requests: OpenRequests,
    life: Life,
    on_listening: Callable[[], None],
    private: socket.socket | None = None,
) -> None:
    """Serve until `life` stops, then drain: no new connections, open answers finish, the last are cut short."""
    config = WireConfig(
        app,
        limits,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = _Server(config, on_listening)
    async with asyncio.TaskGroup() as group:
        sockets = [listener] if private is None else [listener, private]
        serving = group.create_task(server.serve(sockets=sockets))
        await life.stopped()
        server.should_exit = True
        await _drain(serving, open_requests, life)
        server.force_exit = True


async def _drain(serving: asyncio.Task[None], open_requests: OpenRequests, life: Life) -> None:
    log.info("%d open requests may finish, within %.0f s", len(open_requests), life.deadline().left_s())
    await asyncio.wait([serving], timeout=life.deadline().left_s())
    if not serving.done():
        log.warning("%d requests are cut short: the drain's time is over", len(open_requests))
        open_requests.interrupt_all("stopping")
        await asyncio.wait([serving], timeout=LAST_WORDS_S)
