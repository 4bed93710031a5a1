"""What the result path costs: appends of one engine step for all live requests, and a follower that reads them.

    python -m tests.bench.results --json FILE

One process plays worker and gateway in turn on uvloop, as the services run; Redis is TRIPTYCH_TEST_REDIS or a Valkey
of our own. An event is one token of one request; an answer has 16 of them.
"""

import argparse
import asyncio
import resource
import tempfile
import time
import uuid
from pathlib import Path

import msgspec
import uvloop
from redis.asyncio import Redis

from infra import keys
from infra.clock import SystemClock
from infra.follower import RedisFollower
from infra.metrics import Metrics
from infra.ports import Incarnation, Outgoing, Subscription
from infra.redis_client import connect
from infra.results import RedisResults
from schemas.events import Event, Finished, Token, Usage
from schemas.jobs import Head
from tests import services
from tests.bench import published

LIVE_REQUESTS = (1, 16, 64, 256)
TOKENS_PER_ANSWER = 16
STEPS = 400  # of each number of live requests
IDLE_STREAMS = 5_000
IDLE_S = 15.0
WORKER = Incarnation("bench", 1)


class Row(msgspec.Struct, frozen=True):
    """One number of live requests. Times of "worker" and "gateway" are processor time of this process."""

    live: int
    events_per_s: float
    append_p50_ms: float
    append_p99_ms: float
    worker_us_per_event: float
    worker_ms_per_answer: float
    redis_us_per_event: float
    gateway_us_per_event: float


class Idle(msgspec.Struct, frozen=True):
    """Many followed requests that nothing comes for."""

    streams: int
    kib_per_stream: float
    processor_percent: float


class Report(msgspec.Struct, frozen=True):
    rows: list[Row]
    idle: Idle


class Bench:
    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.model = f"bench-{uuid.uuid4().hex[:8]}"
        self.results = RedisResults(redis, Metrics())
        self.follower = RedisFollower(redis, self.model, Metrics(), SystemClock())

    async def heads(self, count: int) -> list[Head]:
        """New requests, claimed."""
        now = SystemClock().now()
        await self.redis.set(keys.alive(self.model, WORKER.worker), WORKER.epoch)
        heads = [Head(uuid.uuid4().hex, self.model, now + 60, now, self.model, streamed=True) for _ in range(count)]
        for head in heads:
            await self.results.claim(head, WORKER, 3)
        return heads

    async def row(self, live: int) -> Row:
        steps = steps_of(await self.heads(live))
        await self.redis.config_resetstat()
        cpu, waits = time.process_time(), []
        for step in steps:
            begun = time.perf_counter()
            await self.results.append(step)
            waits.append(time.perf_counter() - begun)
        cpu = time.process_time() - cpu
        server_us = (await self.redis.info("commandstats"))["cmdstat_evalsha"]["usec"]
        events = live * len(steps)
        waits.sort()
        return Row(
            live=live,
            events_per_s=round(events / sum(waits)),
            append_p50_ms=round(waits[len(waits) // 2] * 1e3, 3),
            append_p99_ms=round(waits[len(waits) * 99 // 100] * 1e3, 3),
            worker_us_per_event=round(cpu / events * 1e6, 2),
            worker_ms_per_answer=round(cpu / events * 1e3 * TOKENS_PER_ANSWER, 3),
            redis_us_per_event=round(server_us / events, 2),
            gateway_us_per_event=round(await self.following(live) - cpu / events * 1e6, 2),
        )

    async def following(self, live: int) -> float:
        """Processor time of append and follower together, microseconds per event."""
        heads = await self.heads(live)
        steps = steps_of(heads)
        readers = [asyncio.ensure_future(drain(self.follower.follow(self.model, head.request_id))) for head in heads]
        cpu = time.process_time()
        for step in steps:
            await self.results.append(step)
        got = await asyncio.gather(*readers)
        cpu = time.process_time() - cpu
        assert got == [len(steps)] * live
        return cpu / (live * len(steps)) * 1e6

    async def idle(self) -> Idle:
        before = resident_kib()
        streams = [self.follower.follow(self.model, f"idle-{number}") for number in range(IDLE_STREAMS)]
        readers = [asyncio.ensure_future(drain(stream)) for stream in streams]
        await asyncio.sleep(0.1)
        grown = resident_kib() - before
        cpu, begun = time.process_time(), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        busy = (time.process_time() - cpu) / (time.perf_counter() - begun)
        for stream in streams:
            stream.close()
        await asyncio.gather(*readers)
        return Idle(IDLE_STREAMS, round(grown / IDLE_STREAMS, 2), round(busy * 100, 1))


def steps_of(heads: list[Head]) -> list[list[Outgoing]]:
    """One token a step for each request, then the end of all."""

    def event(seq: int) -> Event:
        return Finished(1, seq, Usage(500, seq)) if seq == STEPS else Token(1, seq, 0, "word ", [seq])

    return [[Outgoing(head, [event(seq)]) for head in heads] for seq in range(1, STEPS + 1)]


async def drain(subscription: Subscription) -> int:
    count = 0
    async for _ in subscription:
        count += 1
    return count


def resident_kib() -> int:
    """The most that was ever resident; grows only, which is enough for one measurement after the others."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def measure(url: str) -> Report:
    redis = connect(url)
    bench = Bench(redis)
    await bench.follower.start()
    idle = await bench.idle()
    rows = [await bench.row(live) for live in LIVE_REQUESTS]
    await bench.follower.close()
    await redis.aclose()
    return Report(rows, idle)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.bench.results", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="write the figures here too")
    return made


def main() -> None:
    arguments = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder, services.redis(Path(folder)) as url:
        report = uvloop.run(measure(url))
    print(" ".join(f"{name:>20}" for name in Row.__struct_fields__))
    for row in report.rows:
        print(" ".join(f"{value:>20}" for value in msgspec.structs.astuple(row)))
    print(report.idle)
    if arguments.json:
        published.write(arguments.json, "none", report)


if __name__ == "__main__":
    main()
