"""A gateway process as one of several on a port: its place among them, and its line to the one that keeps them.

Over the line it says that it could listen, hears that it may, and says that it does. When the line breaks, the keeper
is dead: nobody would stop or restart this process any more, so it stops by itself.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from gateway.server import listen
from infra.lifecycle import FORCED_EXIT_CODE, Life
from infra.settings import Settings

log = logging.getLogger(__name__)

READY, GO, LISTENING = b"ready\n", b"go\n", b"listening\n"
LOOPBACK = "127.0.0.1"


class Place(msgspec.Struct, frozen=True, array_like=True):
    """What the keeper tells a member at its start. `private`: ids and private ports of all members, by index."""

    index: int
    channel_fd: int
    listener_fd: int | None  # where ports cannot be shared: the socket of all members
    private: list[tuple[str, int]]


class Member:
    """The place of this process. `run` is the frame of its life, `may_listen` stands before the first connection."""

    def __init__(self, place: Place, settings: Settings) -> None:
        """Raises PortTaken."""
        self.place = place
        self.shared = (
            listen(settings.host, settings.port, shared=True)
            if place.listener_fd is None
            else socket.socket(fileno=place.listener_fd)
        )
        self.private_port = place.private[place.index][1]
        self.private = listen(LOOPBACK, self.private_port)
        self._may_listen = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    @property
    def others(self) -> dict[str, int]:
        """Ids and private ports of the other members."""
        return {name: port for name, port in self.place.private if port != self.private_port}

    @asynccontextmanager
    async def belonging(self, life: Life) -> AsyncIterator[None]:
        """Hear the keeper, until the end of this block."""
        # Ctrl-C in a terminal reaches all processes; ours to stop is the keeper's word.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        reader, self._writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=self.place.channel_fd))
        hearing = asyncio.create_task(self._hear(reader, life), name="hear the keeper")
        try:
            yield
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
            self._writer.close()

    async def may_listen(self, life: Life) -> bool:
        """Say that all is ready, and wait for the word; False when the process is to stop instead."""
        self._say(READY)
        return await life.unless_stopped(self._allowed())

    def listening(self) -> None:
        self._say(LISTENING)

    async def _allowed(self) -> None:
        await self._may_listen.wait()

    async def _hear(self, reader: asyncio.StreamReader, life: Life) -> None:
        with suppress(ConnectionError):  # killed with something of ours unread
            async for line in reader:
                if line == GO:
                    self._may_listen.set()
        if life.stopping:
            log.warning("the process that keeps this gateway was ended: not waiting for running work")
            os._exit(FORCED_EXIT_CODE)
        log.error("the process that keeps this gateway is gone: draining")
        life.stop()

    def _say(self, what: bytes) -> None:
        if self._writer is not None:
            self._writer.write(what)
