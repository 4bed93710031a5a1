"""Pipeline mode: the same turns through real processes, in real time or a multiple; only the engine is a model."""

import asyncio
import os
from collections.abc import Sequence

import msgspec

from infra.clock import SystemClock
from tests.bench.steering.meter import Meter, Usage
from tests.bench.steering.pool import Workers, World
from tests.bench.steering.producer import Producer, Sent
from tests.bench.steering.rows import Row, row
from tests.bench.steering.traffic import Rung
from tests.bench.steering.workloads import Workload
from topics.steering.policy import Policy, parse_policy
from workers.engines.sim_parts import SimParams


class NotForThePipeline(Exception):
    """A workload that real processes cannot be given; the message says why."""


class Lost(Exception):
    """Requests did not finish, or not whole."""


def refuse(workload: Workload, policy: Policy) -> None:
    """Raises NotForThePipeline."""
    if workload.linked:
        raise NotForThePipeline(f"{workload.name}: follow-ups need the answers' own tokens, which only fast mode has")
    if workload.slow or workload.kill or workload.slowdown or workload.params != SimParams():
        raise NotForThePipeline(f"{workload.name}: worker processes take the standard model only")
    if policy.approximate:
        raise NotForThePipeline(f"{policy.name}: the pipeline has no record of own decisions; fast mode has")


async def run(world: World, model: str, workload: Workload, arm: str, seed: int, speedup: float = 1.0) -> list[Row]:
    """Cold workers of an own model, then every rung, each drained. Times and rates are the model's own.

    Raises:
        Lost: a request did not finish with every token once.
    """
    policy = parse_policy(arm)
    refuse(workload, policy)
    manifest = await world.serve(model)
    rows = []
    with Workers(world, model, speedup) as workers:
        workers.start(*(f"sim-{number}" for number in range(workload.workers)))
        workers.wait_ready()
        async with Producer(world.settings, manifest, policy, seed) as producer:
            await producer.workers_are(workload.workers)
            pids = {**world.pids, **workers.pids, "producer": os.getpid()}
            for rung in workload.rungs(seed):
                names = {"workload": workload.name, "arm": arm, "mode": "pipeline", "variant": "exact"}
                records, usage = await drive(producer, rung, speedup, pids)
                rows.append(_row(records, usage, rung, seed=seed, **names))
    return rows


async def drive(producer: Producer, rung: Rung, speedup: float, pids: dict[str, int]) -> tuple[list[Sent], Usage]:
    """Send a rung, open loop, and wait for all; records are in modelled seconds since its start."""
    clock = SystemClock()
    start = clock.monotonic()
    meter = Meter(pids, start)
    async with asyncio.TaskGroup() as group:
        tasks = []
        for turn in rung.turns:
            due = start + turn.at / speedup
            await asyncio.sleep(max(0.0, due - clock.monotonic()))
            tasks.append(group.create_task(producer.send(turn, due)))
        usage = meter.read(clock.monotonic())
    return [_modelled(task.result(), start, speedup) for task in tasks], usage


def _modelled(record: Sent, start: float, speedup: float) -> Sent:
    times = {name: getattr(record, name) for name in ("arrived_at", "first_at", "ended_at", "restarted_at")}
    since = {name: (at - start) * speedup for name, at in times.items() if at is not None}
    return msgspec.structs.replace(record, **since)


def _row(records: Sequence[Sent], usage: Usage, rung: Rung, **names: object) -> Row:
    broken = [record.failure or f"{record.tokens} tokens" for record in records if not record.whole]
    if broken:
        raise Lost(f"{len(broken)} of {len(records)} requests did not finish whole, for example: {broken[0]}")
    measured = {
        "cpu_cores": usage.cores,
        "busiest": usage.busiest,
        "busiest_cpu": usage.busiest_share,
        "machine_cpu": usage.machine_share,
        "pipeline_bound": usage.pipeline_bound,
    }
    return row(records, rung, 0.0, **names, **measured)
