"""A server that speaks Redis's protocol and knows one answer: for what no real server can be made to say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def answering(line: bytes) -> AsyncIterator[str]:
    """Answers every command with this line (without its end), whatever it asks; yields the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _command(reader):
                writer.write(line + b"\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client is gone, as all clients once are
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """The next one; empty at the end of the connection."""
    head = await reader.readline()
    if not head:
        return []
    words: list[bytes] = []
    for _ in range(int(head[1:])):
        length = int((await reader.readline())[1:])
        words.append((await reader.readexactly(length + 2))[:-2])
    return words
