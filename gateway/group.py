"""Several gateway processes that answer on one port, and the one that keeps them: `python -m gateway --gateways N`.

The keeper serves nothing itself. It takes the port, starts the members, lets them listen once all of them can, starts
one that dies again, and passes a stop on. Each member is a gateway of its own, with an id, metrics and a private port;
see gateway/member.py for its side.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress

import msgspec

from gateway.member import GO, LISTENING, LOOPBACK, READY, Place
from gateway.server import LAST_WORDS_S, listen
from infra import backoff
from infra import settings as config
from infra.clock import Clock, SystemClock
from infra.lifecycle import Life, signals

log = logging.getLogger(__name__)

MEMBER = [sys.executable, "-m", "gateway"]
# Only Linux shares connections out among sockets of one port; elsewhere the members inherit one socket.
SHARES_PORTS = sys.platform == "linux"
# By convention of our processes (and argparse): wrong settings, which another start does not mend.
CANNOT_RUN_CODE = 2
# What a member may take after its drain and its last words, to close its connections.
CLOSING_S = 5.0


class _Over(Exception):
    """A member cannot run, and has said why."""


class Group:
    """One life of the keeper. `command` is what a member runs; `--member` and its place come behind it."""

    def __init__(
        self,
        settings: config.Settings,
        count: int,
        *,
        command: Sequence[str] = MEMBER,
        shares_ports: bool = SHARES_PORTS,
        clock: Clock | None = None,
    ) -> None:
        """Raises PortTaken."""
        self._settings = settings
        self._count = count
        self._command = command
        self._shares = shares_ports
        self._clock = clock or SystemClock()
        self._life = Life(settings.drain_s)
        self._listener = _reserved(settings.host, settings.port, shares_ports)
        names = [f"{settings.gateway_name}-{index}" for index in range(count)]
        self._private = list(zip(names, _private_ports(settings.metrics_port, count), strict=True))
        self._first_ready: set[int] = set()
        self._listening: set[int] = set()
        self._all_ready = asyncio.Event()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def run(self) -> int:
        """Until it is told to stop, or a member cannot run at all; returns the exit code."""
        async with signals(self._life):
            code = 0
            try:
                async with asyncio.TaskGroup() as group:
                    for index in range(self._count):
                        group.create_task(self._keep(index), name=f"gateway {index}")
            except* _Over:
                code = CANNOT_RUN_CODE
            finally:
                self._listener.close()
        return code

    async def _keep(self, index: int) -> None:
        """One place of the group: a member in it, or the wait for the next one, until the group stops."""
        deaths = 0
        while not self._life.stopping:
            began = self._clock.monotonic()
            code = await self._member(index)
            if self._life.stopping:
                return
            served = index in self._listening
            if code == CANNOT_RUN_CODE and not self._all_ready.is_set():
                raise _Over
            self._listening.discard(index)
            deaths = backoff.deaths_in_a_row(deaths, self._clock.monotonic() - began if served else 0.0)
            wait_s = backoff.delay_s(deaths)
            log.warning("gateway %d ended with code %d; again in %.1f s", index, code, wait_s)
            await self._life.unless_stopped(asyncio.sleep(wait_s))

    async def _member(self, index: int) -> int:
        """One life of a member; returns its exit code, negative when a signal ended it."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = await self._start(index, theirs)
            theirs.close()
            talking = asyncio.create_task(self._talk(index, ours), name=f"talk to gateway {index}")
            stopping = asyncio.create_task(self._stop(process), name=f"stop gateway {index}")
            try:
                return await process.wait()
            finally:
                talking.cancel()
                stopping.cancel()
                await asyncio.gather(talking, stopping, return_exceptions=True)
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async def _start(self, index: int, channel: socket.socket) -> asyncio.subprocess.Process:
        inherited = None if self._shares else self._listener.fileno()
        place = Place(index, channel.fileno(), inherited, self._private)
        given = {
            "host": self._settings.host,
            "port": str(self.port),
            "gateway_id": self._private[index][0],
        }
        fds = [fd for fd in (channel.fileno(), inherited) if fd is not None]
        return await asyncio.create_subprocess_exec(
            *self._command,
            "--member",
            msgspec.json.encode(place).decode(),
            env=config.child_environment({config.variable(name): value for name, value in given.items()}),
            pass_fds=fds,
        )

    async def _talk(self, index: int, channel: socket.socket) -> None:
        """What the member says of itself; and, when all can, that it may listen."""
        reader, writer = await asyncio.open_unix_connection(sock=channel)
        try:
            with suppress(ConnectionError):  # it has ended; its exit code says more
                async for line in reader:
                    await self._heard(index, line, writer)
        finally:
            writer.close()

    async def _heard(self, index: int, line: bytes, writer: asyncio.StreamWriter) -> None:
        if line == READY:
            self._first_ready.add(index)
            if len(self._first_ready) == self._count:
                self._all_ready.set()
            await self._all_ready.wait()
            writer.write(GO)
        elif line == LISTENING:
            self._listening.add(index)
            if len(self._listening) == self._count:
                self._say_where()

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        """Pass a stop on; and an end, when it takes too long."""
        await self._life.stopped()
        with suppress(ProcessLookupError):  # it has ended by itself
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(self._life.deadline().left_s() + LAST_WORDS_S + CLOSING_S)
            log.warning("process %d does not end; it is killed", process.pid)
            process.kill()

    def _say_where(self) -> None:
        host, port = self._listener.getsockname()[:2]
        private = ", ".join(f"{name} on {LOOPBACK}:{one}" for name, one in self._private)
        log.info("%d gateways listen on http://%s:%d; by itself each: %s", self._count, host, port, private)


def _reserved(host: str, port: int, shares_ports: bool) -> socket.socket:
    """The port, taken for us but not listened on. Raises PortTaken also for one that others would share with us."""
    listener = listen(host, port)
    if not shares_ports:
        return listener
    at = int(listener.getsockname()[1])
    listener.close()
    return listen(host, at, shared=True)


def _private_ports(first: int, count: int) -> list[int]:
    """One for each member: those from `first` on, or free ones. Raises PortTaken."""
    with ExitStack() as held:
        found = [
            held.enter_context(closing(listen(LOOPBACK, first + number if first else 0))) for number in range(count)
        ]
        return [int(one.getsockname()[1]) for one in found]
