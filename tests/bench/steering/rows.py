"""From records to rows, from rows to runs, and from runs to figures: means over seeds with their spread."""

from collections.abc import Iterable, Sequence
from statistics import mean, pstdev

import msgspec

from tests.bench.steering.gateway import Record
from tests.bench.steering.traffic import Rung


class Row(msgspec.Struct, frozen=True):
    """One rung of one run."""

    workload: str
    arm: str
    mode: str  # fast (on the twin of the index) | redis (the same, decided on Redis) | pipeline
    variant: str  # how good the information was
    seed: int
    rate: float  # requests/s, or clients of a closed loop
    requests: int
    out_tokens_s: float  # all output over the time from the rung's start to its last token
    hit_rate: float  # cached prompt tokens / prompt tokens, as the workers counted
    predicted_hit_rate: float
    kv_usage: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    hops: int = 0  # jobs given back to steering, all together
    most_hops: int = 0  # of one job
    counted: bool = True  # False for a rung that warms up
    # Pipeline mode only, over the time in which requests arrived:
    cpu_cores: float = 0.0  # taken by all processes of the pipeline
    busiest: str = ""  # the process that took most ...
    busiest_cpu: float = 0.0  # ... as a share of one core
    machine_cpu: float = 0.0  # share of all cores that anybody took
    pipeline_bound: bool = False  # the processes, not the modelled workers, may have set the pace


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A counted rung of a ladder that is drawn."""

    rate: float
    out_tokens_s: float
    ttft_p90_s: float


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One arm on one workload with one seed: what is published of its rows."""

    workload: str
    variant: str
    arm: str
    seed: int
    out_tokens_s: float  # mean over the counted rungs
    top_out_tokens_s: float  # at the last rung
    hit_rate: float  # mean over the counted rungs
    low_hit_rate: float  # on the counted rung where it is lowest
    ttft_p90_s: float  # at the last rung
    ttft_p99_s: float
    hops: int = 0
    ladder: list[Point] = []


class Figure(msgspec.Struct, frozen=True):
    """One arm on one workload over all seeds."""

    workload: str
    arm: str
    variant: str
    seeds: int
    out_tokens_s: float  # mean over the counted rungs, then over seeds
    out_spread: float  # standard deviation over seeds
    top_out_tokens_s: float  # at the last rung
    hit_rate: float
    ttft_p90_s: float  # at the last rung, mean over seeds
    ttft_p90_spread: float


def row(records: Sequence[Record], rung: Rung, started_at: float, **names: object) -> Row:
    waits = sorted(record.first_at - record.arrived_at for record in records)
    prompt_tokens = sum(record.turn.prompt_tokens for record in records)
    seconds = max(record.ended_at for record in records) - started_at
    return Row(
        rate=rung.rate,
        requests=len(records),
        out_tokens_s=sum(record.turn.output_tokens for record in records) / seconds,
        hit_rate=sum(record.cached_tokens for record in records) / prompt_tokens,
        predicted_hit_rate=sum(record.predicted_tokens for record in records) / prompt_tokens,
        kv_usage=mean(record.kv_usage for record in records),
        ttft_p50_s=_quantile(waits, 0.5),
        ttft_p90_s=_quantile(waits, 0.9),
        ttft_p99_s=_quantile(waits, 0.99),
        hops=sum(record.hops for record in records),
        most_hops=max(record.hops for record in records),
        counted=rung.counted,
        **names,  # type: ignore[arg-type]  # the caller names the run: workload, arm, mode, variant, seed
    )


def runs(rows: Iterable[Row], drawn: Sequence[str] = ()) -> list[Run]:
    """`drawn`: workloads whose ladders are kept."""
    by_run: dict[tuple[str, str, str, int], list[Row]] = {}
    for each in rows:
        if each.counted:
            by_run.setdefault((each.workload, each.variant, each.arm, each.seed), []).append(each)
    return [_run(rungs, rungs[0].workload in drawn and rungs[0].variant == "exact") for rungs in by_run.values()]


def _run(rungs: Sequence[Row], drawn: bool) -> Run:
    first, top = rungs[0], rungs[-1]
    points = [Point(each.rate, round(each.out_tokens_s, 1), round(each.ttft_p90_s, 3)) for each in rungs]
    return Run(
        workload=first.workload,
        variant=first.variant,
        arm=first.arm,
        seed=first.seed,
        out_tokens_s=round(mean(each.out_tokens_s for each in rungs), 2),
        top_out_tokens_s=round(top.out_tokens_s, 2),
        hit_rate=round(mean(each.hit_rate for each in rungs), 5),
        low_hit_rate=round(min(each.hit_rate for each in rungs), 5),
        ttft_p90_s=round(top.ttft_p90_s, 4),
        ttft_p99_s=round(top.ttft_p99_s, 4),
        hops=sum(each.hops for each in rungs),
        ladder=points if drawn else [],
    )


def figures(runs: Iterable[Run]) -> list[Figure]:
    by_arm: dict[tuple[str, str, str], list[Run]] = {}
    for each in runs:
        by_arm.setdefault((each.workload, each.variant, each.arm), []).append(each)
    return [_figure(key, seeds) for key, seeds in by_arm.items()]


def _figure(key: tuple[str, str, str], runs: Sequence[Run]) -> Figure:
    workload, variant, arm = key
    outs = [run.out_tokens_s for run in runs]
    waits = [run.ttft_p90_s for run in runs]
    return Figure(
        workload,
        arm,
        variant,
        len(runs),
        mean(outs),
        pstdev(outs),
        mean(run.top_out_tokens_s for run in runs),
        mean(run.hit_rate for run in runs),
        mean(waits),
        pstdev(waits),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
