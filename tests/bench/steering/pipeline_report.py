"""What the pipeline's runs look like on paper: beside the fast mode, and while workers come and go."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from tests.bench.steering.rows import Row
from tests.bench.steering.scaling import CUT, WINDOW_S, Outcome


def compared(rows: Sequence[Row]) -> str:
    """Each counted rung of each arm: pipeline / fast, mean over seeds."""
    lines = [
        "| workload | requests/s | arm | output tokens/s | hit rate | predicted - actual | TTFT p50, s | TTFT p90, s |"
        " CPU: cores, busiest process | limit |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    cells: dict[tuple[str, float, str], dict[str, list[Row]]] = {}
    for each in rows:
        if each.counted:
            cells.setdefault((each.workload, each.rate, each.arm), {}).setdefault(each.mode, []).append(each)
    for key in sorted(cells, key=lambda key: key[:2]):
        lines.append(_line(key, cells[key].get("pipeline", []), cells[key].get("fast", [])))
    return "\n".join(lines) + "\n"


def _line(key: tuple[str, float, str], pipeline: Sequence[Row], fast: Sequence[Row]) -> str:
    def both(name: str, how: str) -> str:
        sides = [format(mean(getattr(row, name) for row in side), how) if side else "-" for side in (pipeline, fast)]
        return " / ".join(sides)

    off = [
        format(mean(row.predicted_hit_rate - row.hit_rate for row in side), "+.1%") if side else "-"
        for side in (pipeline, fast)
    ]
    cpu, limit = "-", "-"
    if pipeline:
        top = max(pipeline, key=lambda row: row.busiest_cpu)
        cpu = f"{mean(row.cpu_cores for row in pipeline):.2f}, {top.busiest} {top.busiest_cpu:.0%}"
        limit = "pipeline" if any(row.pipeline_bound for row in pipeline) else "model"
    workload, rate, arm = key
    cells = [workload, f"{rate:g}", arm, both("out_tokens_s", ",.0f"), both("hit_rate", ".1%"), " / ".join(off)]
    return f"| {' | '.join([*cells, both('ttft_p50_s', '.2f'), both('ttft_p90_s', '.2f'), cpu, limit])} |"


def phases(outcome: Outcome) -> str:
    lines = [
        f"| from, s | what happens | requests | hit rate (lowest {WINDOW_S} s) | predicted - actual |"
        " TTFT p50 / p90 / max, s | started over | recovered after, s |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    smooth = _smooth(outcome.hit_rates)
    ends = [*(int(each.at) for each in outcome.phases[1:]), len(outcome.hit_rates)]
    for each, end in zip(outcome.phases, ends, strict=True):
        lowest = min(smooth[int(each.at) : end - WINDOW_S + 1])
        recovery = "not before the next" if each.recovery_s is None else f"{each.recovery_s:.0f}"
        cells = [
            f"{each.at:.0f}",
            each.about,
            str(each.requests),
            f"{each.hit_rate:.1%} ({lowest:.1%})",
            f"{each.predicted_hit_rate - each.hit_rate:+.1%}",
            f"{each.ttft_p50_s:.2f} / {each.ttft_p90_s:.2f} / {each.ttft_max_s:.2f}",
            str(each.restarts),
            recovery if each.at else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _smooth(rates: Sequence[float]) -> list[float]:
    """Means over WINDOW_S, by the window's first second."""
    return [mean(rates[at : at + WINDOW_S]) for at in range(len(rates) - WINDOW_S + 1)]


def ends(outcomes: Sequence[Outcome]) -> str:
    """How the requests of each play ended."""
    lines = [
        f"| answers | sent | finished, every token once | cut: `{CUT}` | lost | started over |"
        f" lowest hit rate of {WINDOW_S} s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in outcomes:
        restarts = sum(phase.restarts for phase in each.phases)
        began = int(each.phases[1].at)  # caches are cold before
        cells = [
            "streamed" if each.streamed else "whole",
            *(f"{count:,}" for count in (each.sent, each.whole, each.cut, each.lost, restarts)),
            f"{min(_smooth(each.hit_rates)[began:]):.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot_scaling(outcome: Outcome, path: Path, metadata: Mapping[str, str]) -> None:
    """Hit rate by second of arrival, and every request's TTFT below it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(10, 5.6), sharex=True, height_ratios=(2, 1))
    rates = outcome.hit_rates
    above.plot([at + 0.5 for at in range(len(rates))], rates, ".", color="0.6", label="one second")
    centres = [at + WINDOW_S / 2 for at in range(len(rates) - WINDOW_S + 1)]
    smooth = _smooth(rates)
    above.plot(centres, smooth, color="black", label=f"{WINDOW_S} s")
    below.semilogy([at for at, _ in outcome.waits], [wait for _, wait in outcome.waits], ".", color="0.3")
    for phase in outcome.phases:
        for axis in (above, below):
            axis.axvline(phase.at, color="tab:red", linewidth=0.8, linestyle=":")
        above.text(phase.at + 0.4, 0.03, phase.about, rotation=90, fontsize=8, va="bottom")
    above.set(ylabel="prefix hit rate", ylim=(0, 1.03), title="2 -> 4 -> 3 workers under load (sim engine)")
    below.set(xlabel="arrival, s", ylabel="TTFT, s")
    above.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata=dict(metadata))
    pyplot.close(figure)
