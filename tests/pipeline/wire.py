"""A client that writes the very bytes it is told to, and reads answers as HTTP/1.1 frames them."""

import asyncio
import json
from contextlib import suppress
from typing import Any, Self

import msgspec

from tests.pipeline.conftest import MODEL, Gateway

CHAT = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}]}).encode()
STREAM = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "stream": True}).encode()
HOST = b"host: gateway\r\n"
WITHIN_S = 5.0


class Answer(msgspec.Struct, frozen=True):
    version: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error in OpenAI's shape."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return str(error["code"])


class Wire:
    """One connection; every wait is bounded."""

    def __init__(self, gateway: Gateway) -> None:
        self._port = int(gateway.url.rsplit(":", 1)[1])

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def send(self, *pieces: bytes) -> None:
        """The gateway reads each piece by itself: it has a turn of the same event loop after each."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def drip(self, data: bytes, at_once: int) -> None:
        """The beginning at once, then a byte a hundredth of a second, for as long as that is borne."""
        with suppress(ConnectionError):
            await self.send(data[:at_once])
            for at in range(at_once, len(data)):
                await asyncio.sleep(0.01)  # what this is for: taking time
                await self.send(data[at : at + 1])

    async def answer(self, *, bodiless: bool = False) -> Answer:
        """The next one, whose body ends where its head says: by length, by chunks, or with the connection."""
        async with asyncio.timeout(WITHIN_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")[:-2]
            version, status = first.split(" ")[:2]
            headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
            body = b"" if bodiless else await self._body(headers)
        return Answer(version, int(status), headers, body)

    async def closed(self) -> bytes:
        """What comes until the other side closes; nothing, when it closes while we still send."""
        async with asyncio.timeout(WITHIN_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self._reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") == "chunked":
            return await self._chunks()
        assert headers["connection"] == "close"
        return await self._reader.read()

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        assert await self._reader.readexactly(2) == b"\r\n"
        return body


def post(body: bytes = CHAT, *headers: bytes, path: bytes = b"/v1/chat/completions", version: bytes = b"1.1") -> bytes:
    lines = b"".join(line + b"\r\n" for line in headers)
    length = b"content-length: %d\r\n" % len(body)
    return b"POST %s HTTP/%s\r\n%s%s%s\r\n%s" % (path, version, HOST, length, lines, body)


def chunked(*chunks: bytes, trailers: bytes = b"", extra: bytes = b"") -> bytes:
    framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = b"POST /v1/chat/completions HTTP/1.1\r\n%s%stransfer-encoding: chunked\r\n\r\n" % (HOST, extra)
    return head + framed + b"0\r\n" + trailers + b"\r\n"


def get(path: bytes, *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1", host: bytes = HOST) -> bytes:
    return b"%s %s HTTP/%s\r\n%s%s\r\n" % (method, path, version, host, b"".join(one + b"\r\n" for one in headers))
