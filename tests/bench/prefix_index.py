"""`python -m tests.bench.prefix_index --json FILE`: server time of one decision, by prompt length, with 64 workers."""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from uuid import uuid4

import msgspec
from redis.asyncio import Redis

from infra.ports import Incarnation
from infra.prefix_index import CacheEvent, PrefixIndex
from infra.redis_client import connect
from schemas.steering import Ask, WorkerView
from tests import services
from tests.bench import published
from topics.steering.affinity import AffinityParams

PARAMS = msgspec.structs.asdict(AffinityParams())
BLOCKS = (16, 112, 512, 1_563, 2_048)
WORKERS = [Incarnation(f"w{number:02}", 1) for number in range(64)]


class Timing(msgspec.Struct, frozen=True):
    case: str
    blocks: int
    server_cpu_ms: float  # mean processor time of the server, reading the call and writing the answer included
    script_ms: float  # mean wall time of the script, as the server counts it: grows when the machine is busy
    client_ms: float  # median, from call to answer


async def measure(url: str, calls: int) -> list[Timing]:
    redis, rng = connect(url), random.Random(7)
    timings = []
    try:
        for blocks in BLOCKS:
            index = PrefixIndex(redis, f"bench-{uuid4().hex}", lag_s=600.0)
            prompt = [rng.randbytes(8) for _ in range(blocks)]
            for number, worker in enumerate(WORKERS):
                await index.register(worker, WorkerView("", total_blocks=50_000))
                depth = blocks if number < 8 else rng.randrange(blocks + 1)  # no early exit: eight hold all of it
                await index.apply(worker, 1, [CacheEvent("s", b"".join(prompt[:depth]))])
            ask = Ask(blocks * 64 + 30, blocks, 64, 500.0)
            warm = [(f"warm{n}", prompt) for n in range(calls)]
            cold = [(f"cold{n}", [rng.randbytes(8) for _ in range(blocks)]) for n in range(calls)]
            timings.append(await _timed(redis, index, "warm: decide + reserve", ask, warm))
            timings.append(await _timed(redis, index, "cold: decide + reserve", ask, cold))
            for ticket, _ in warm + cold:
                await index.release([ticket], [ticket])
    finally:
        await redis.aclose()
    return timings


async def _timed(
    redis: Redis, index: PrefixIndex, case: str, ask: Ask, prompts: list[tuple[str, list[bytes]]]
) -> Timing:
    await redis.config_resetstat()
    before_s, waits_s = await _cpu_s(redis), []
    for ticket, prompt in prompts:
        started = time.perf_counter()
        assert await index.place(ticket, ask, prompt, WORKERS, PARAMS, 60.0)
        waits_s.append(time.perf_counter() - started)
    cpu_s = await _cpu_s(redis) - before_s
    stats = (await redis.info("commandstats"))["cmdstat_evalsha"]
    script_ms = stats["usec"] / stats["calls"] / 1000
    return Timing(case, ask.prompt_blocks, cpu_s * 1000 / len(prompts), script_ms, median(waits_s) * 1000)


async def _cpu_s(redis: Redis) -> float:
    used = await redis.info("cpu")
    return float(used["used_cpu_user_main_thread"]) + float(used["used_cpu_sys_main_thread"])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.prefix_index", description=__doc__)
    made.add_argument("--calls", type=int, default=200, help="decisions per case")
    made.add_argument("--json", type=Path, help="write the figures here")
    return made


def main() -> None:
    options = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder, services.redis(Path(folder)) as url:
        timings = asyncio.run(measure(url, options.calls))
    print("| case | blocks | server CPU ms | script ms | client ms |\n|---|---:|---:|---:|---:|")
    for each in timings:
        print(
            f"| {each.case} | {each.blocks:,} | {each.server_cpu_ms:.2f} "
            f"| {each.script_ms:.2f} | {each.client_ms:.2f} |"
        )
    if options.json:
        published.write(options.json, "none", {"workers": len(WORKERS), "timings": timings})


if __name__ == "__main__":
    main()
