"""A load generator that costs little: raw sockets, one connection a client, each request measured to its first byte."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Sequence

import msgspec


class Sample(msgspec.Struct, frozen=True):
    first_s: float  # request written -> first byte of the body
    end_s: float  # request written -> last byte


class Run(msgspec.Struct, frozen=True):
    samples: list[Sample]
    errors: list[str]
    wall_s: float

    @property
    def per_s(self) -> float:
        return len(self.samples) / self.wall_s


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def request_bytes(port: int, body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Sample:
    """One request on a kept-alive connection. Raises ValueError for anything but a complete 200."""
    start = time.perf_counter()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in head[:20]:
        raise ValueError(head.split(b"\r\n", 1)[0].decode())
    if b"content-length:" in head:
        await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        end = time.perf_counter() - start
        return Sample(end, end)
    first_s = 0.0
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        await reader.readexactly(size + 2)
        first_s = first_s or time.perf_counter() - start
        if size == 0:
            return Sample(first_s, time.perf_counter() - start)


async def closed_loop(port: int, body: Callable[[int], dict[str, object]], concurrency: int, seconds: float) -> Run:
    """`concurrency` clients, each sending its next request when the last one ended, for `seconds`.

    `body` makes the n-th request of all.
    """
    numbers = itertools.count()
    samples: list[Sample] = []
    errors: list[str] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        try:
            while time.perf_counter() < until:
                try:
                    request = request_bytes(port, body(next(numbers)))
                    samples.append(await asyncio.wait_for(exchange(reader, writer, request), 60))
                except (ValueError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    errors.append(repr(error))
                    writer.close()
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        finally:
            writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    return Run(samples, errors, time.perf_counter() - start)
