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
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from tests.bench import published
from tests.bench.steering import pipeline, pipeline_report, report, scaling
from tests.bench.steering.cluster import Cluster, MakeDesk
from tests.bench.steering.desks import LocalDesk
from tests.bench.steering.gateway import VARIANTS
from tests.bench.steering.pool import World, services
from tests.bench.steering.redis_desk import RedisDesk
from tests.bench.steering.rows import Row, row, runs
from tests.bench.steering.workloads import SCALED, WORKLOADS, Workload
from tests.services import redis
from topics.steering.policy import Policy, parse_policy

ARMS = "random,round_robin,least_load,anchor,weighted_approximate,weighted,weighted_active,affinity_filter,affinity"
# Of a variant, those whose decisions the variant changes; hand-off is ours.
_INFORMED = "weighted,weighted_active,affinity_filter,affinity"
ARMS_OF = {"late": _INFORMED, "gateways4": _INFORMED, "handoff": "affinity"}
REDIS_ARMS = ARMS.replace("weighted_approximate,", "")
PIPELINE_ARMS = "round_robin,least_load,weighted,affinity"

# Workloads whose ladders are drawn.
DRAWN = ("w1", "w1z")

Run = Callable[[str, str, str, int], list[Row]]  # workload, variant, arm, seed


def main() -> None:
    options = _options()
    if options.scaling:
        _scaling(options)
    elif options.mode == "pipeline":
        _pipeline(options)
    else:
        through_redis = options.through == "redis"
        rows = _through_redis(options) if through_redis else _sweep(options, "fast", _fast, _resumed(options))
        told = runs(rows, DRAWN)
        print(report.table(told))
        print(report.verdicts(report.judged(told)))
        if options.summary:
            published.write(options.summary, "sim", {"runs": told})


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


def _scaling(options: argparse.Namespace) -> None:
    """The play once for each kind of answers, on workers of its own."""
    outcomes = []
    with _world(options) as world:
        for kind in options.answers.split(","):
            outcomes.append(asyncio.run(scaling.run(world, f"bench-{kind}", streamed=kind == "streamed")))
            print(pipeline_report.phases(outcomes[-1]))
    print(pipeline_report.ends(outcomes))
    print([failure for outcome in outcomes for failure in outcome.failures][:5])
    if options.json:
        published.write(options.json, "sim", {"broker": options.broker, "plays": outcomes})
    if any(outcome.lost for outcome in outcomes):
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
            _save(options, rows)  # what has run is kept, whatever becomes of the rest
            workload, variant, arm, seed = names
            top = f"{rows[-1].out_tokens_s:,.0f} tok/s at the top"
            print(f"{mode} {workload} {variant} {arm} seed {seed}: {top}", file=sys.stderr)
    return rows


def _cells(options: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    for variant in options.variants.split(","):
        for seed in range(options.seeds):
            for workload in options.workload.split(","):
                for arm in (options.arms or ARMS_OF.get(variant, ARMS)).split(","):
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


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.steering", description=__doc__)
    made.add_argument("--workload", help=f"of {', '.join(WORKLOADS | SCALED)}, comma separated")
    made.add_argument(
        "--arms", help="steering policies, comma separated; unless given, those that the variant is about"
    )
    made.add_argument("--variants", default="exact", help=f"of {', '.join(VARIANTS)}; fast mode only")
    made.add_argument("--seeds", type=int, help="how many; 5 in fast mode, 1 on the pipeline")
    made.add_argument("--mode", choices=["fast", "pipeline"], default="fast")
    made.add_argument("--through", choices=["twin", "redis"], default="twin", help="fast mode: who decides")
    made.add_argument("--scaling", action="store_true", help="2 -> 4 -> 3 workers under load, on the whole pipeline")
    made.add_argument("--broker", choices=["embedded", "kafka"], default="embedded", help="pipeline, scaling")
    made.add_argument("--speedup", type=float, default=1.0, help="pipeline: how much faster than the modelled worker")
    made.add_argument("--answers", default="whole,streamed", help="scaling: how clients want them, comma separated")
    made.add_argument("--json", type=Path, help="write the rows (or the outcome) here")
    made.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    made.add_argument("--summary", type=Path, help="fast mode: write what is published of the rows here")
    return made


def _options() -> argparse.Namespace:
    reader = parser()
    options = reader.parse_args()
    whole: bool = options.mode == "pipeline"
    options.workload = options.workload or ",".join(SCALED if whole else WORKLOADS)
    options.arms = options.arms or (PIPELINE_ARMS if whole else REDIS_ARMS if options.through == "redis" else None)
    options.seeds = options.seeds or (1 if whole else 5)
    if whole:
        _refuse(reader, options)
    if options.through == "redis":
        _refuse_redis(reader, options)
    return options


def _refuse(reader: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """What the pipeline cannot run is said before an hour has passed."""
    if options.variants != "exact":
        reader.error("variants of the information are for fast mode; the pipeline has its own")
    try:
        for workload, _, arm, _ in _cells(options):
            pipeline.refuse(_known(workload), parse_policy(arm))
    except pipeline.NotForThePipeline as error:
        reader.error(str(error))


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


def _save(options: argparse.Namespace, rows: list[Row]) -> None:
    setting = {"broker": options.broker, "speedup": options.speedup} if options.mode == "pipeline" else {}
    if options.json:
        published.write(options.json, "sim", {**setting, "rows": rows})


if __name__ == "__main__":
    main()
