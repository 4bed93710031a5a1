"""HealthServer: three pages, and nothing that a rude client could break."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from infra import health_server
from infra.health_server import MAX_REQUEST_BYTES, HealthServer
from infra.metrics import Metrics


class Process:
    """What the server tells about."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.missing: list[str] = []
        self.server = HealthServer("127.0.0.1", 0, self.metrics, lambda: self.missing)

    async def send(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(request)
        try:
            async with asyncio.timeout(5):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def get(self, path: str) -> tuple[int, bytes]:
        answer = await self.send(f"GET {path} HTTP/1.1\r\nhost: here\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    process = Process()
    await process.server.start()
    yield process
    await process.server.close()


async def test_a_process_that_answers_is_healthy_whatever_is_missing(process: Process) -> None:
    process.missing = ["engine"]
    assert await process.get("/healthz") == (200, b"ok\n")


async def test_readiness_says_what_is_missing(process: Process) -> None:
    process.missing = ["engine: loading weights", "redis: no answer"]
    assert await process.get("/readyz") == (503, b"engine: loading weights\nredis: no answer\n")
    process.missing = []
    assert await process.get("/readyz?verbose") == (200, b"ready\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_head_is_get_without_the_body(process: Process, path: str) -> None:
    answer = (await process.send(f"HEAD {path} HTTP/1.1\r\nhost: here\r\n\r\n".encode())).decode()
    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert answer.endswith("\r\n\r\n")
    assert "content-length: 0" not in answer


async def test_metrics_are_served(process: Process) -> None:
    process.metrics.job_ended("m", "finished")
    status, body = await process.get("/metrics")
    assert status == 200
    assert b'triptych_jobs_total{model="m",outcome="finished"} 1.0' in body


async def test_other_paths_and_methods_are_refused(process: Process) -> None:
    assert (await process.get("/"))[0] == 404
    assert (await process.send(b"POST /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize("rude", [b"", b"GET", b"\r\n\r\n", b"\xff\xfe\r\n\r\n", b"x" * (2 * MAX_REQUEST_BYTES)])
async def test_rude_clients_are_dropped_and_others_are_served(
    process: Process, rude: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "REQUEST_TIMEOUT_S", 0.1)
    assert b"200 OK" not in await process.send(rude)
    assert (await process.get("/healthz"))[0] == 200


async def test_port_zero_takes_a_free_one_and_a_taken_one_is_an_error(process: Process) -> None:
    assert process.server.port > 0
    second = HealthServer("127.0.0.1", process.server.port, process.metrics, list)
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await second.close()
