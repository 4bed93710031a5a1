"""A web server that misbehaves on purpose, and names that resolve as a test wants."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

from topics.intake.places import Address

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Web:
    """Listens on loopback; each path has its own way of answering. Knows what it has been asked."""

    def __init__(self, paths: Mapping[str, Answer], host: str = "127.0.0.1") -> None:
        self.paths = dict(paths)
        self.host = host
        self.port = 0
        self.asked: list[str] = []  # heads of requests, as they came
        self._talking: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @asynccontextmanager
    async def listening(self, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._talk, self.host, port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._talking:
                task.cancel()
            await asyncio.gather(*self._talking, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talking.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.asked.append(head)
            path = head.split(" ")[1].partition("?")[0]
            await self.paths[path](writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client has had enough
        except asyncio.CancelledError:
            pass  # `listening` has: nobody else knows this task, and asyncio would log one that ends cancelled
        finally:
            writer.close()


class Names:
    """A name server: each name's answers in turn, the last one for ever."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._answers = {name: list(one) for name, one in answers.items()}
        self.asked: list[str] = []

    async def addresses(self, host: str) -> list[Address]:
        self.asked.append(host)
        answers = self._answers.get(host, [[]])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ipaddress.ip_address(one) for one in found]

    def close(self) -> None:
        """Nothing is open."""


def raw(data: bytes) -> Answer:
    """These bytes, and the end."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


def page(body: bytes, *headers: str, status: str = "200 OK") -> Answer:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return raw("\r\n".join(lines).encode("latin-1") + body)


def redirect(location: str, status: str = "302 Found") -> Answer:
    return page(b"", f"location: {location}", "set-cookie: session=secret", status=status)


def dripping(begin: bytes, piece: bytes, every_s: float) -> Answer:
    """`begin`, and then a piece again and again, until the client has had enough."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while True:
            await writer.drain()
            await asyncio.sleep(every_s)
            writer.write(piece)

    return answer
