"""`python -m tests.bench.steering`: every arm on every workload, with identical arrivals and equal information.

`--mode fast` runs in one process on a virtual clock, on a twin of the index; with `--through redis` the same workers
and arrivals are decided on a real Redis by the scripts of production. `--mode pipeline` runs the whole pipeline in real
time, and the fast mode beside it; `--scaling` plays workers that come, go and die under load.
"""

import argparse
import asyncio
import itertools
import os
import random
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from tests.bench.steering import pipeline, pipeline_report, report, scaling
from tests.bench.steering.cluster import Cluster, MakeDesk
from tests.bench.steering.desks import LocalDesk
from tests.bench.steering.gateway import VARIANTS
from tests.bench.steering.pool import World, services
from tests.bench.steering.redis_desk import RedisDesk
from tests.bench.steering.rows import Row, row
from tests.bench.steering.workloads import SCALED, WORKLOADS, Workload
from tests.services import redis
from topics.steering.policy import Policy, parse_policy

ARMS = "random,round_robin,least_load,anchor,weighted_approximate,weighted,weighted_active,affinity_filter,affinity"
REDIS_ARMS = ARMS.replace("weighted_approximate,", "")
PIPELINE_ARMS = "round_robin,least_load,weighted,affinity"

NOTES = """\
Arrivals are identical and information is equal for all arms, as the index gives it out. Without a mark, index and
gauges are as they are now; `reported`: gauges, memory and speeds are told every half second, as by our workers;
`late`: index events 2 s late, own decisions at once; `gateways4`: four gateways that share no reservations and hear of
the others by reports each second (ours shares them through Redis, so this is its worst case); `handoff`: workers give
queued jobs back. Everything is the model of `workers/engines/sim_model.py`; its parameters have their sources beside
them in `sim_parts.py`. The shapes of chat, w8b and closed and the speed of w2's workers are assumptions, in
`tests/bench/steering/workloads.py`.
"""

Run = Callable[[str, str, str, int], list[Row]]  # workload, variant, arm, seed


def main() -> None:
    options = _options()
    if options.scaling:
        _scaling(options)
    elif options.mode == "pipeline":
        _pipeline(options)
    else:
        rows = (
            _through_redis(options) if options.through == "redis" else _sweep(options, "fast", _fast, _resumed(options))
        )
        print(report.table(rows))
        print(report.verdicts(rows))
        if options.docs:
            _write(options.docs, rows, options.through)


def _through_redis(options: argparse.Namespace) -> list[Row]:
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="triptych-steering-") as folder, redis(Path(folder)) as url:

        def desk(workers: int, policy: Policy, rng: random.Random) -> RedisDesk:
            return RedisDesk(url, f"bench-{os.getpid()}-{next(numbers)}", workers, policy, rng)

        def run(workload: str, variant: str, arm: str, seed: int) -> list[Row]:
            return _fast(workload, variant, arm, seed, desk)

        return _sweep(options, "redis", run, _resumed(options))


def _pipeline(options: argparse.Namespace) -> None:
    rows = _sweep(options, "fast", _fast, _resumed(options))
    numbers = itertools.count()
    with _world(options) as world:

        def run(workload: str, variant: str, arm: str, seed: int) -> list[Row]:
            model = f"bench-{next(numbers)}"  # nothing is left of the arm before
            return asyncio.run(pipeline.run(world, model, _known(workload), arm, seed, options.speedup))

        rows = _sweep(options, "pipeline", run, rows)
    print(pipeline_report.compared(rows))
    if options.docs:
        options.docs.mkdir(parents=True, exist_ok=True)
        pipeline_report.write_pipeline(options.docs, rows, _command(), _setting(options))


def _scaling(options: argparse.Namespace) -> None:
    with _world(options) as world:
        outcome = asyncio.run(scaling.run(world))
    print(pipeline_report.phases(outcome))
    print(f"{outcome.sent} sent, {outcome.whole} finished whole; {outcome.failures[:3]}")
    if options.json:
        options.json.write_bytes(msgspec.json.encode(outcome))
    if options.docs:
        options.docs.mkdir(parents=True, exist_ok=True)
        pipeline_report.write_scaling(options.docs, outcome, _command(), _setting(options))
    if outcome.whole < outcome.sent:
        raise SystemExit("requests were lost")


@contextmanager
def _world(options: argparse.Namespace) -> Iterator[World]:
    with (
        tempfile.TemporaryDirectory(prefix="triptych-steering-") as folder,
        services(Path(folder), options.broker) as one,
    ):
        yield one


def _sweep(options: argparse.Namespace, mode: str, run: Run, rows: list[Row]) -> list[Row]:
    """All that `rows` lacks of this mode is run and added; the file is written after every run."""
    done = {(each.mode, each.workload, each.variant, each.arm, each.seed) for each in rows}
    for names in _cells(options):
        if (mode, *names) not in done:
            rows = rows + run(*names)
            _save(options.json, rows)
            workload, variant, arm, seed = names
            top = f"{rows[-1].out_tokens_s:,.0f} tok/s at the top"
            print(f"{mode} {workload} {variant} {arm} seed {seed}: {top}", file=sys.stderr)
    return rows


def _cells(options: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    for variant in options.variants.split(","):
        for seed in range(options.seeds):
            for workload in options.workload.split(","):
                for arm in options.arms.split(","):
                    yield workload, variant, arm, seed


def _fast(workload_name: str, variant: str, arm: str, seed: int, desk: MakeDesk = LocalDesk) -> list[Row]:
    workload = _known(workload_name)
    with closing(Cluster(workload, parse_policy(arm), seed, VARIANTS[variant], desk)) as cluster:
        mode = "fast" if desk is LocalDesk else "redis"
        names = {"workload": workload_name, "arm": arm, "mode": mode, "variant": variant, "seed": seed}
        rows = []
        for rung in workload.rungs(seed):
            started_at = cluster.now
            rows.append(row(cluster.run(rung), rung, started_at, **names))
        return rows


def _known(workload: str) -> Workload:
    return (WORKLOADS | SCALED)[workload]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.steering", description=__doc__)
    parser.add_argument("--workload", help=f"of {', '.join(WORKLOADS | SCALED)}, comma separated")
    parser.add_argument("--arms", help="steering policies, comma separated")
    parser.add_argument("--variants", default="exact", help=f"of {', '.join(VARIANTS)}; fast mode only")
    parser.add_argument("--seeds", type=int, help="how many; 5 in fast mode, 1 on the pipeline")
    parser.add_argument("--mode", choices=["fast", "pipeline"], default="fast")
    parser.add_argument("--through", choices=["twin", "redis"], default="twin", help="fast mode: who decides")
    parser.add_argument("--scaling", action="store_true", help="2 -> 4 -> 3 workers under load, on the whole pipeline")
    parser.add_argument("--broker", choices=["embedded", "kafka"], default="embedded", help="pipeline, scaling")
    parser.add_argument("--speedup", type=float, default=1.0, help="pipeline: how much faster than the modelled worker")
    parser.add_argument("--json", type=Path, help="write the rows (or the outcome) here")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    parser.add_argument("--docs", type=Path, help="write the table and the plots into this folder")
    options = parser.parse_args()
    whole: bool = options.mode == "pipeline"
    options.workload = options.workload or ",".join(SCALED if whole else WORKLOADS)
    options.arms = options.arms or (PIPELINE_ARMS if whole else REDIS_ARMS if options.through == "redis" else ARMS)
    options.seeds = options.seeds or (1 if whole else 5)
    if whole:
        _refuse(parser, options)
    if options.through == "redis":
        _refuse_redis(parser, options)
    return options


def _refuse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """What the pipeline cannot run is said before an hour has passed."""
    if options.variants != "exact":
        parser.error("variants of the information are for fast mode; the pipeline has its own")
    try:
        for workload, _, arm, _ in _cells(options):
            pipeline.refuse(_known(workload), parse_policy(arm))
    except pipeline.NotForThePipeline as error:
        parser.error(str(error))


def _refuse_redis(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.mode != "fast":
        parser.error("--through is for fast mode; the pipeline goes through Redis as it is")
    if apart := [name for name in options.variants.split(",") if VARIANTS[name].gateways > 1]:
        parser.error(f"{', '.join(apart)}: gateways that share Redis share their reservations")
    if own := [arm for arm in options.arms.split(",") if parse_policy(arm).approximate]:
        parser.error(f"{', '.join(own)}: Redis has no record of own decisions; the twin has")


def _resumed(options: argparse.Namespace) -> list[Row]:
    if not options.resume or options.json is None or not options.json.exists():
        return []
    return msgspec.convert(msgspec.json.decode(options.json.read_bytes())["rows"], list[Row])


def _save(path: Path | None, rows: list[Row]) -> None:
    if path:
        path.write_bytes(msgspec.json.encode({"rows": rows}))


def _command() -> str:
    return "python -m tests.bench.steering " + shlex.join(sys.argv[1:])


def _setting(options: argparse.Namespace) -> str:
    broker = {"embedded": "The embedded broker", "kafka": "Apache Kafka"}[options.broker]
    return f"{broker}, {os.cpu_count()} cores shared by all processes, {options.speedup:g}x real time."


def _write(folder: Path, rows: list[Row], through: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    title = {"twin": "every arm on every workload", "redis": "decided on Redis by the scripts of production"}[through]
    text = (
        f"# Steering: {title}, by the worker model (sim)\n\n"
        f"Made by `{_command()}`.\n\n"
        f"{NOTES}\n"
        "Mean output tokens/s over the ladder ± standard deviation over seeds (TTFT p90 at the top rung, s).\n\n"
        f"{report.table(rows)}\n## Ours against its rivals\n\n{report.verdicts(rows)}"
    )
    if through == "redis":
        (folder / "steering_redis.md").write_text(text)
        return
    (folder / "steering.md").write_text(text)
    report.plot_workloads(rows, folder / "steering_workloads.png")
    for workload in ("w1", "w1z"):
        if any(each.workload == workload for each in rows):
            report.plot_ladder(rows, workload, folder / f"steering_{workload}.png")


if __name__ == "__main__":
    main()
