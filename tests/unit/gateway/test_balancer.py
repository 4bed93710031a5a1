"""Connections are shared out among what a name leads to, and go around what does not answer."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from gateway import balancer as under_test
from gateway.balancer import Address, Balancer
from gateway.server import listen
from infra.lifecycle import Life
from tests.waiting import until


class Behind:
    """A server that says its name and then sends back what it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.server: asyncio.Server
        self.open = 0

    @property
    def address(self) -> Address:
        host, port = self.server.sockets[0].getsockname()[:2]
        return host, port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        writer.write(f"{self.name}\n".encode())
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the test has cut it
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def behind(name: str) -> AsyncIterator[Behind]:
    one = Behind(name)
    one.server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    try:
        yield one
    finally:
        one.server.close()


@asynccontextmanager
async def balancing(*targets: Address, life: Life | None = None) -> AsyncIterator[int]:
    """The port."""
    listener, life = listen("127.0.0.1", 0), life or Life(0.2)
    port = int(listener.getsockname()[1])
    running = asyncio.create_task(Balancer(targets).run(listener, life))
    try:
        await until(lambda: listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1)
        yield port
    finally:
        life.stop()
        await asyncio.wait_for(running, 10)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def name(self) -> str:
        return (await self.reader.readline()).decode().strip()


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def test_bytes_pass_both_ways_unchanged_and_the_end_too() -> None:
    sent = bytes(range(256)) * 4_096
    async with behind("a") as one, balancing(one.address) as port, client(port) as to:
        assert await to.name() == "a"
        to.writer.write(sent)
        assert await to.reader.readexactly(len(sent)) == sent
        to.writer.close()
        await until(lambda: one.open == 0)


async def test_a_new_connection_goes_where_there_are_the_fewest() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(behind(name)) for name in "abc"]
        port = await stack.enter_async_context(balancing(*(one.address for one in servers)))
        clients = [await stack.enter_async_context(client(port)) for _ in range(9)]
        names = [await one.name() for one in clients]
        assert sorted(names) == sorted("abc" * 3)
        for one, name in zip(clients, names, strict=True):
            if name == "b":
                one.writer.close()
        await until(lambda: servers[1].open == 0)
        later = [await stack.enter_async_context(client(port)) for _ in range(3)]
        assert [await one.name() for one in later] == ["b"] * 3


async def test_one_that_does_not_answer_is_gone_around() -> None:
    async with behind("gone") as gone:
        dead = gone.address
    async with behind("a") as one, balancing(dead, one.address) as port:
        for _ in range(4):
            async with client(port) as to:
                assert await to.name() == "a"


async def test_with_nobody_behind_it_a_client_is_told_at_once_and_served_when_somebody_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(under_test, "LOOK_UP_EVERY_S", 0.05)
    found: list[Address] = []

    async def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if not found:
            raise OSError("no such name")
        return [(2, 1, 6, "", one) for one in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    async with behind("a") as one, balancing(("gateway", 8_000)) as port:
        async with client(port) as to:
            assert await to.reader.read() == b""
        found.append(one.address)
        await until(lambda: says(port, "a"))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "gateway: no such name"
    ]


async def says(port: int, name: str) -> bool:
    async with client(port) as to:
        return await to.name() == name


async def test_a_stop_lets_open_connections_end_and_takes_no_new_ones() -> None:
    life = Life(10)
    async with behind("a") as one, balancing(one.address, life=life) as port, client(port) as to:
        assert await to.name() == "a"
        life.stop()
        await until(lambda: refused(port))
        to.writer.write(b"still here")
        assert await to.reader.readexactly(10) == b"still here"


async def test_a_connection_that_does_not_end_is_cut_when_the_drain_is_over() -> None:
    async with behind("a") as one, AsyncExitStack() as stack:
        async with balancing(one.address) as port:
            to = await stack.enter_async_context(client(port))
            assert await to.name() == "a"
        assert await to.reader.read() == b""


async def refused(port: int) -> bool:
    try:
        async with client(port):
            return False
    except ConnectionError:
        return True


async def test_there_is_a_bound_on_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MOST_CONNECTIONS", 2)
    async with behind("a") as one, balancing(one.address) as port, client(port) as first, client(port) as second:
        assert [await first.name(), await second.name()] == ["a", "a"]
        async with client(port) as third:
            assert await third.reader.read() == b""
