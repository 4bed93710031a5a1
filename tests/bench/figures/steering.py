"""Tables and numbers of the steering benches."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.bench.steering import pipeline_report, report
from tests.bench.steering.report import Verdict
from tests.bench.steering.rows import Row, Run
from tests.bench.steering.scaling import Outcome

Data = Mapping[str, Any]

# What the README shows: even load, then skewed, then uneven workers.
HEADLINES = ("w1", "w1z", "w1h")
# Closer than this, five seeds do not tell two arms apart.
ALIKE, ALIKE_S = 0.002, 0.05


def runs(data: Data) -> list[Run]:
    return msgspec.convert(data["runs"], list[Run])


def outcomes(data: Data) -> list[Outcome]:
    return msgspec.convert(data["plays"], list[Outcome])


def real(data: Data) -> str:
    lines = [
        "| policy | requests | prefix hit rate | TTFT p50, s | p90, s | mean, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in data["rows"]:
        waits = " | ".join(f"{row[name]:.2f}" for name in ("ttft_p50_s", "ttft_p90_s", "ttft_mean_s"))
        lines.append(f"| `{row['policy']}` | {row['requests']} | {row['hit_rate']:.1%} | {waits} |")
    return "\n".join(lines) + "\n"


def table(data: Data) -> str:
    pictures = [("workloads", "every workload"), ("w1", "w1"), ("w1z", "w1z")]
    shown = "\n".join(f"![{about}](steering_{name}.png)" for name, about in pictures)
    return f"{report.table(runs(data))}\n{shown}\n"


def verdicts(data: Data) -> str:
    return report.verdicts(report.judged(runs(data)))


def headline(data: Data) -> str:
    judged = [each for each in report.judged(runs(data)) if each.own.variant == "exact"]
    lines = [
        "| workload (sim) | seeds | hit rate | output at the top / round-robin | output / 3/2/2 |"
        " output / best rival |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [_headline(each) for each in judged if each.own.workload in HEADLINES]
    worst = min(judged, key=lambda each: each.of_best)
    lines.append(f"| worst of {len(judged)}: {_headline(worst)[2:]}")
    return "\n".join(lines) + "\n"


def _headline(each: Verdict) -> str:
    cells = [
        each.name,
        str(each.own.seeds),
        f"{each.own.hit_rate:.1%}",
        report.times(each.of_blind),
        report.times(each.of_blend),
        f"{each.of_best:.3f} (`{each.out.arm}`)",
    ]
    return f"| {' | '.join(cells)} |"


def behind(data: Data) -> str:
    """Where a rival has more output, or a shorter wait at the top of the ladder."""
    lines = [
        "| workload (sim) | output / best rival | TTFT p90, s | shortest of the rivals', s |",
        "|---|---:|---:|---:|",
    ]
    for each in report.judged(runs(data)):
        less = each.of_best < 1.0 - ALIKE
        later = each.later_s > max(ALIKE_S, 0.01 * each.wait.ttft_p90_s)
        if less or later:
            out = f"{each.of_best:.3f} ({each.out.arm})" if less else "-"
            waits = (
                [f"{each.own.ttft_p90_s:.2f}", f"{each.wait.ttft_p90_s:.2f} ({each.wait.arm})"] if later else ["-"] * 2
            )
            lines.append(f"| {each.name} | {' | '.join([out, *waits])} |")
    return "\n".join(lines) + "\n"


def pipeline(data: Data) -> str:
    return pipeline_report.compared(msgspec.convert(data["rows"], list[Row]))


def ends(data: Data) -> str:
    return pipeline_report.ends(outcomes(data))


def phases(data: Data) -> str:
    """Of each play a table and a picture."""
    return "\n".join(map(_phases, outcomes(data)))


def _phases(play: Outcome) -> str:
    kind = "streamed" if play.streamed else "whole"
    usage = play.usage
    return (
        f"{kind.capitalize()} answers (sim), {play.sent:,} requests; the busiest lasting process took "
        f"{usage.busiest_share:.0%} of a core ({usage.busiest}), the machine was {usage.machine_share:.0%} busy.\n\n"
        f"{pipeline_report.phases(play)}\n![hit rate by second, {kind}](steering_scaling_{kind}.png)\n"
    )


def numbers(data: Data) -> dict[str, float]:
    exact = [each for each in report.judged(runs(data)) if each.own.variant == "exact"]
    made: dict[str, float] = {"worst_of_best": min(each.of_best for each in exact)}
    for each in exact:
        name = each.own.workload
        made[f"{name}.hit_rate"] = each.own.hit_rate
        made[f"{name}.of_best"] = each.of_best
        if each.of_blind:
            made[f"{name}.of_round_robin_at_top"] = each.of_blind
        if each.of_blend:
            made[f"{name}.of_blend"] = each.of_blend
    return made | _handoff(runs(data))


def _handoff(all_runs: Sequence[Run]) -> dict[str, float]:
    """Output of ours with hand-off as a share of that without it: the least and the most of all workloads."""
    plain = {
        (run.workload, run.seed): run.out_tokens_s
        for run in all_runs
        if (run.variant, run.arm) == ("exact", "affinity")
    }
    given: dict[str, list[float]] = {}
    for run in all_runs:
        if run.variant == "handoff" and run.arm == "affinity" and (run.workload, run.seed) in plain:
            given.setdefault(run.workload, []).append(run.out_tokens_s / plain[run.workload, run.seed])
    means = [sum(ratios) / len(ratios) for ratios in given.values()]
    return {"handoff.least": min(means), "handoff.most": max(means)} if means else {}
