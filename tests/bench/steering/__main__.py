"""`python -m tests.bench.steering`: every arm on every workload, with identical arrivals and equal information."""

import argparse
import shlex
import sys
from pathlib import Path

import msgspec

from tests.bench.steering import report
from tests.bench.steering.cluster import Cluster
from tests.bench.steering.gateway import VARIANTS
from tests.bench.steering.rows import Row, row
from tests.bench.steering.workloads import WORKLOADS
from topics.steering.policy import parse_policy

ARMS = "random,round_robin,least_load,anchor,weighted_approximate,weighted,weighted_active,affinity_filter,affinity"


NOTES = """\
Arrivals are identical and information is equal for all arms. Without a mark, index and gauges are as they are now;
`late`: index events 2 s late, own decisions at once; `gateways4`: four gateways that share no reservations and hear of
the others by reports each second (ours shares them through Redis, so this is its worst case); `handoff`: workers give
queued jobs back. Everything is the model of `workers/engines/sim_model.py`; its parameters have their sources beside
them in `sim_parts.py`. The shapes of chat, w8b and closed and the speed of w2's workers are assumptions, in
`tests/bench/steering/workloads.py`.
"""


def main() -> None:
    options = _options()
    rows = _resumed(options.json) if options.resume else []
    done = {(each.workload, each.variant, each.arm, each.seed) for each in rows}
    for variant in options.variants.split(","):
        for seed in range(options.seeds):
            for workload in options.workload.split(","):
                for arm in options.arms.split(","):
                    if (workload, variant, arm, seed) not in done:
                        rows += _run(workload, variant, arm, seed)
                        _save(options.json, rows)
    print(report.table(rows))
    print(report.verdicts(rows))
    if options.docs:
        _write(options.docs, rows)


def _run(workload_name: str, variant: str, arm: str, seed: int) -> list[Row]:
    workload = WORKLOADS[workload_name]
    cluster = Cluster(workload, parse_policy(arm), seed, VARIANTS[variant])
    rows = []
    for rung in workload.rungs(seed):
        started_at = cluster.now
        records = cluster.run(rung)
        names = {"workload": workload_name, "arm": arm, "mode": "fast", "variant": variant, "seed": seed}
        rows.append(row(records, rung, started_at, **names))
    print(
        f"{workload_name} {variant} {arm} seed {seed}: {rows[-1].out_tokens_s:,.0f} tok/s at the top", file=sys.stderr
    )
    return rows


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.steering", description=__doc__)
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="comma separated")
    parser.add_argument("--arms", default=ARMS, help="steering policies, comma separated")
    parser.add_argument("--variants", default="exact", help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--mode", choices=["fast"], default="fast", help="fast: in process, virtual clock")
    parser.add_argument("--json", type=Path, help="write the rows here, after every run")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    parser.add_argument("--docs", type=Path, help="write the table and the plots into this folder")
    return parser.parse_args()


def _resumed(path: Path | None) -> list[Row]:
    if path is None or not path.exists():
        return []
    return msgspec.convert(msgspec.json.decode(path.read_bytes())["rows"], list[Row])


def _save(path: Path | None, rows: list[Row]) -> None:
    if path:
        path.write_bytes(msgspec.json.encode({"rows": rows}))


def _write(folder: Path, rows: list[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = "python -m tests.bench.steering " + shlex.join(sys.argv[1:])
    text = (
        "# Steering: every arm on every workload, by the worker model (sim)\n\n"
        f"Made by `{command}`.\n\n"
        f"{NOTES}\n"
        "Mean output tokens/s over the ladder ± standard deviation over seeds (TTFT p90 at the top rung, s).\n\n"
        f"{report.table(rows)}\n## Ours against its rivals\n\n{report.verdicts(rows)}"
    )
    (folder / "steering.md").write_text(text)
    report.plot_workloads(rows, folder / "steering_workloads.png")
    for workload in ("w1", "w1z"):
        if any(each.workload == workload for each in rows):
            report.plot_ladder(rows, workload, folder / f"steering_{workload}.png")


if __name__ == "__main__":
    main()
