"""Many open streams on one gateway: no error, a flat cost, and all of it given back at the end."""

import asyncio
from pathlib import Path

import psutil
import pytest

from tests import services, stack
from tests.bench.load import request_bytes
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]

MODEL, STREAMS, STEP_S = "smollm2-135m", 200, 1.0


async def hold(port: int, tokens: int) -> str:
    """Open one stream, read it to its end; the last line of it."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hold"}], "max_tokens": tokens, "stream": True}
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(port, {**body, "ignore_eos": True}))
    text = b""
    while b"0\r\n\r\n" not in text[-7:]:
        piece = await reader.read(65536)
        if not piece:
            break
        text += piece
    writer.close()
    return text.decode()


async def test_two_hundred_held_streams_cost_little_and_leave_nothing(tmp_path: Path) -> None:
    arguments = [
        "--model",
        MODEL,
        "--engine",
        "stub",
        "--workers",
        "1",
        "--worker-args",
        f"--slots 1000 --step-ms {STEP_S * 1e3}",
    ]
    with stack.running(tmp_path / "home", *arguments, *services.broker_wish()) as one:
        port = int(one.url.rsplit(":", 1)[1])
        gateway = psutil.Process(one.pid("gateway"))
        await asyncio.gather(*(hold(port, 1) for _ in range(STREAMS)))  # the first ones pay for caches
        baseline_bytes, connections = gateway.memory_info().rss, len(gateway.net_connections())
        streams = [asyncio.create_task(hold(port, 8)) for _ in range(STREAMS)]
        await until(lambda: one.metric("triptych_open_streams") == STREAMS, within_s=15)
        held_bytes = gateway.memory_info().rss - baseline_bytes
        assert held_bytes / STREAMS < 100_000, f"{held_bytes / STREAMS:.0f} bytes a stream"
        texts = await asyncio.gather(*streams)
        assert all(text.count("data: [DONE]") == 1 and "error" not in text for text in texts)
        await until(lambda: one.metric("triptych_open_streams") == 0)
        await until(lambda: len(gateway.net_connections()) <= connections, within_s=15)
        assert gateway.memory_info().rss - baseline_bytes < 8 << 20
