"""`python -m gateway.balancer --to HOST:PORT`: one address before any number of gateways, for where nothing else is.

It passes bytes on and reads none of them. A name is looked up again and again: all its addresses are gateways, and a
new connection goes to the one with the fewest, or to the next one when that does not answer. Listens where a gateway
would (TRIPTYCH_HOST, TRIPTYCH_PORT).
"""

import argparse
import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Sequence

import uvloop

from gateway.server import BACKLOG, PortTaken, listen
from infra import log as logs
from infra import settings as config
from infra.lifecycle import Life, signals

log = logging.getLogger(__name__)

LOOK_UP_EVERY_S = 2.0
CONNECT_S = 2.0
MOST_CONNECTIONS = 10_000
CHUNK_BYTES = 64 << 10
EXIT_UNUSABLE = 2

Address = tuple[str, int]


class Balancer:
    """`targets`: names or addresses with their ports."""

    def __init__(self, targets: Sequence[Address]) -> None:
        self._targets = targets
        self._known: dict[Address, list[Address]] = {}  # by target
        self._open: Counter[Address] = Counter()
        self._connections: set[asyncio.Task[None]] = set()
        self._unknown: set[Address] = set()

    async def run(self, listener: socket.socket, life: Life) -> None:
        """Until `life` stops; then open connections may end by themselves, within its drain."""
        await self.look_up()
        looking = asyncio.create_task(self._keep_looking(), name="look names up")
        server = await asyncio.start_server(self._accepted, sock=listener, limit=CHUNK_BYTES, backlog=BACKLOG)
        try:
            await life.stopped()
            server.close()
            log.info("%d connections may end, within %.0f s", len(self._connections), life.deadline().left_s())
            if self._connections:
                await asyncio.wait(self._connections, timeout=life.deadline().left_s())
        finally:
            server.close()
            for task in (looking, *self._connections):
                task.cancel()
            await asyncio.gather(looking, *self._connections, return_exceptions=True)

    async def look_up(self) -> None:
        for target in self._targets:
            try:
                async with asyncio.timeout(CONNECT_S):
                    found = await asyncio.get_running_loop().getaddrinfo(*target, type=socket.SOCK_STREAM)
            except OSError as error:  # a TimeoutError is one
                # What was known stays: a name server may be away, too.
                if target not in self._unknown:
                    log.warning("%s: %s", target[0], error or "no answer in time")
                self._unknown.add(target)
                continue
            self._unknown.discard(target)
            self._known[target] = list(dict.fromkeys((str(one[4][0]), int(one[4][1])) for one in found))

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_UP_EVERY_S)
            await self.look_up()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._connected(reader, writer), name="connection")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from a client, to its end; never fails."""
        try:
            for address in self._by_load():
                # Counted before it is there: others that are accepted now must see it.
                self._open[address] += 1
                try:
                    async with asyncio.timeout(CONNECT_S):
                        behind = await asyncio.open_connection(*address, limit=CHUNK_BYTES)
                    await _pass_on((reader, writer), behind)
                    return
                except OSError as error:  # a TimeoutError is one
                    log.info("%s:%d: %s", *address, error or "no answer in time")
                finally:
                    self._open[address] -= 1
        finally:
            writer.close()

    def _by_load(self) -> list[Address]:
        known = dict.fromkeys(address for found in self._known.values() for address in found)
        for gone in [address for address, count in self._open.items() if not count and address not in known]:
            del self._open[gone]
        return sorted(known, key=self._open.__getitem__)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _pass_on(client: Streams, behind: Streams) -> None:
    """Both ways, until one side has ended or broken off; then the other has nobody to talk to."""
    ways = [
        asyncio.create_task(_copy(client[0], behind[1]), name="to the gateway"),
        asyncio.create_task(_copy(behind[0], client[1]), name="to the client"),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        behind[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        return  # one side has broken off; the other is closed, which tells it


def _target(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} should read HOST:PORT")
    return host.strip("[]"), int(port)


async def serve(settings: config.Settings, targets: Sequence[Address]) -> None:
    life = Life(settings.drain_s)
    listener = listen(settings.host, settings.port)
    async with signals(life):
        await Balancer(targets).run(listener, life)


def main() -> int:
    parser = argparse.ArgumentParser("python -m gateway.balancer", description="Settings come from TRIPTYCH_*.")
    parser.add_argument("--to", type=_target, action="append", required=True, metavar="HOST:PORT")
    asked = parser.parse_args()
    try:
        settings = config.load()
        logs.setup(settings.log_level)
        uvloop.run(serve(settings, asked.to))
    except (config.WrongSetting, PortTaken) as error:
        print(f"balancer: {error}", file=sys.stderr)  # noqa: T201  # the command's own words
        return EXIT_UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
