"""`python -m tests.bench.streams --json FILE`: 5,000 connections that hold an open stream each, on one gateway.

A stub engine emits a token every 5 s to each (no model runs). Reported: errors, memory a stream, and how long the first
chunk of a new request takes meanwhile.
"""

import argparse
import asyncio
import json
import resource
import tempfile
from pathlib import Path

import psutil

from tests.bench import published
from tests.bench.load import exchange, percentile, request_bytes
from tests.stack import Stack, running

MODEL, STEP_S = "smollm2-135m", 5.0
OPEN_AT_ONCE = 100


def body(tokens: int) -> dict[str, object]:
    messages = [{"role": "user", "content": "hold"}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "ignore_eos": True, "stream": True}


async def hold(port: int, tokens: int, gate: asyncio.Semaphore, opened: list[None], errors: list[str]) -> None:
    async with gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes(port, body(tokens)))
        head = await reader.readuntil(b"\r\n\r\n")
    opened.append(None)
    text = b""
    while piece := await reader.read(65536):
        text += piece
        if text.endswith(b"0\r\n\r\n"):
            break
    if b" 200 " not in head[:20] or text.count(b"data: [DONE]") != 1 or b'"error"' in text:
        errors.append((head + text)[-200:].decode(errors="replace"))
    writer.close()


async def probe(port: int, count: int) -> list[float]:
    """Seconds to the first chunk of new requests, less the stub's first step."""
    waits = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sample = await exchange(reader, writer, request_bytes(port, body(1)))
        waits.append(sample.first_s)
        writer.close()
    return waits


async def bench(stack: Stack, streams: int, tokens: int) -> dict[str, object]:
    port = int(stack.url.rsplit(":", 1)[1])
    gateway = psutil.Process(stack.pid("gateway"))
    alone = await probe(port, 20)
    before = gateway.memory_info().rss
    gate, opened, errors = asyncio.Semaphore(OPEN_AT_ONCE), [], []  # type: ignore[var-annotated]
    held = [asyncio.create_task(hold(port, tokens, gate, opened, errors)) for _ in range(streams)]
    while len(opened) < streams and not errors:  # noqa: ASYNC110 - coarse progress of thousands is all that is asked
        await asyncio.sleep(0.1)
    open_streams = stack.metric("triptych_open_streams")
    rss = gateway.memory_info().rss - before
    cpu_before = sum(gateway.cpu_times()[:2])
    meanwhile = await probe(port, 40)
    await asyncio.sleep(5)
    cpu_s = sum(gateway.cpu_times()[:2]) - cpu_before
    await asyncio.gather(*held)
    await asyncio.sleep(2)
    return {
        "engine": "stub (no model runs)",
        "streams": streams,
        "open_streams_seen": open_streams,
        "errors": len(errors),
        "first_error": errors[:1],
        "kib_per_stream": round(rss / streams / 1024, 1),
        "first_chunk_alone_p50_ms": round(percentile(alone, 0.5) * 1e3, 1),
        "first_chunk_meanwhile_p50_ms": round(percentile(meanwhile, 0.5) * 1e3, 1),
        "first_chunk_meanwhile_p99_ms": round(percentile(meanwhile, 0.99) * 1e3, 1),
        "gateway_cpu_s_meanwhile": round(cpu_s, 2),
        "open_streams_after": stack.metric("triptych_open_streams"),
        "rss_after_mib": round((gateway.memory_info().rss - before) / 2**20, 1),
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.streams", description=__doc__)
    made.add_argument("--json", type=Path, help="write the figures here")
    made.add_argument("--streams", type=int, default=5_000)
    made.add_argument("--tokens", type=int, default=8, help="per stream, one every 5 s")
    return made


def main() -> None:
    given = parser().parse_args()
    wanted = given.streams + 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),) * 2)
    with tempfile.TemporaryDirectory(prefix="triptych-bench-") as home:
        arguments = ["--model", MODEL, "--engine", "stub", "--workers", "1"]
        arguments += ["--worker-args", f"--slots {given.streams + 100} --step-ms {STEP_S * 1e3} --first-ms 0"]
        with running(Path(home), *arguments) as stack:
            result = asyncio.run(bench(stack, given.streams, given.tokens))
    print(json.dumps(result, indent=2))
    if given.json:
        published.write(given.json, "stub", result)


if __name__ == "__main__":
    main()
