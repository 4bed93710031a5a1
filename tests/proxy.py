"""A TCP proxy that fails on demand: what a test needs to lose a connection at a moment of its choosing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 65_536


class Proxy:
    """Forwards to one address; `cut` drops and refuses connections, `freeze` keeps them open and silent."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._refusing = False
        self._swallowing = False
        self._thawed = asyncio.Event()
        self._thawed.set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        self._refusing = True
        for writer in self._writers:
            writer.transport.abort()

    def restore(self) -> None:
        self._refusing = self._swallowing = False

    def redirect(self, host: str, port: int) -> None:
        """Later connections go there; those that are open stay where they are."""
        self._target = (host, port)

    def freeze(self) -> None:
        """Nothing passes any more on connections that are open now; later ones work."""
        self._thawed.clear()
        self._thawed = asyncio.Event()
        self._thawed.set()

    def swallow_answers(self) -> None:
        """What is sent arrives, but no answer comes back, until `restore`."""
        self._swallowing = True

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        self.cut()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._connect(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        both = {writer, far_writer}
        self._writers |= both
        thawed = self._thawed
        try:
            there = self._pump(reader, far_writer, thawed, answers=False)
            back = self._pump(far_reader, writer, thawed, answers=True)
            await asyncio.gather(there, back, return_exceptions=True)
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, thawed: asyncio.Event, *, answers: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await thawed.wait()
                if answers and self._swallowing:
                    continue
                writer.write(data)
                await writer.drain()
            writer.close()


@asynccontextmanager
async def proxy_to(host: str, port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(host, port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
