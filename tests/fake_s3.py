"""An HTTP server that knows one answer, byte for byte: for what no real object store can be made to say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FakeS3:
    """Reads a request, sends `answer` and hangs up."""

    def __init__(self) -> None:
        self.answer = b""
        self.endpoint = ""


@asynccontextmanager
async def running() -> AsyncIterator[FakeS3]:
    fake = FakeS3()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"100-continue" in head.lower():
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)
            writer.write(fake.answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client is gone, as all clients once are
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        fake.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield fake


def error(status: int, code: str) -> bytes:
    """As S3 refuses."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>so it is</Message></Error>'.encode()
    return response(status, body, len(body))


def response(status: int, body: bytes, announced_bytes: int) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nContent-Length: {announced_bytes}\r\n\r\n"
    return head.encode() + body
