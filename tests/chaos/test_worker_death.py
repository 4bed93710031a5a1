"""kill -9 of an LLM worker under load: nothing hangs, nothing vanishes, every stream has exactly one end."""

import asyncio
import json
import urllib.parse

import pytest

from tests.stack import Stack

pytestmark = [pytest.mark.services, pytest.mark.vllm, pytest.mark.timeout(300)]

MODEL, STREAMS = "smollm2-135m", 20


def request(stack: Stack, number: int, *, stream: bool, max_tokens: int) -> bytes:
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"Story number {number}, please."}],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": stream,
        }
    ).encode()
    host = urllib.parse.urlsplit(stack.url).netloc
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


class Client:
    """One raw HTTP exchange, read to its end; the wire as it is, no SDK between."""

    def __init__(self) -> None:
        self.raw = b""
        self.began = asyncio.Event()

    async def run(self, stack: Stack, data: bytes) -> None:
        address = urllib.parse.urlsplit(stack.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(data)
        while piece := await reader.read(65536):
            self.raw += piece
            if b"tok" in self.raw or b"content" in self.raw:
                self.began.set()
        self.began.set()
        writer.close()

    @property
    def ends(self) -> int:
        """How many terminal marks the client saw: [DONE], an error event or an error body."""
        return self.raw.count(b"data: [DONE]") + self.raw.count(b'"error":')


async def test_twenty_streams_survive_or_end_when_a_worker_is_killed(stack: Stack) -> None:
    clients = [Client() for _ in range(STREAMS)]
    runs = [
        asyncio.create_task(client.run(stack, request(stack, number, stream=True, max_tokens=120)))
        for number, client in enumerate(clients)
    ]
    await asyncio.wait_for(asyncio.gather(*(client.began.wait() for client in clients)), 90)
    stack.kill("llm-0")
    await asyncio.wait_for(asyncio.gather(*runs), 120)
    assert [client.ends for client in clients] == [1] * STREAMS
    finished = sum(b"data: [DONE]" in client.raw for client in clients)
    lost = sum(b'"worker_lost"' in client.raw for client in clients)
    assert finished + lost == STREAMS
    assert finished > 0, "the other worker's streams were not to be touched"
    await stack.ready_again()


async def test_whole_answers_in_flight_are_made_again_elsewhere(stack: Stack) -> None:
    clients = [Client() for _ in range(8)]
    runs = [
        asyncio.create_task(client.run(stack, request(stack, number, stream=False, max_tokens=40)))
        for number, client in enumerate(clients)
    ]
    await asyncio.sleep(2.0)  # the moment of the kill is arbitrary; the result must not depend on it
    stack.kill("llm-1")
    await asyncio.wait_for(asyncio.gather(*runs), 150)
    for client in clients:
        head, _, body = client.raw.partition(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0], client.raw[:500]
        assert json.loads(body)["usage"]["completion_tokens"] == 40
    await stack.ready_again()
