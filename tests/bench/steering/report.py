"""The sweep as Markdown tables and pictures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tests.bench.steering.rows import Figure, Run, figures


def table(runs: Iterable[Run]) -> str:
    """Mean output tokens/s ± spread over several seeds (TTFT p90 at the top rung, s); the best output in bold."""
    summary = figures(runs)
    arms = list(dict.fromkeys(each.arm for each in summary))
    lines = [f"| workload | {' | '.join(arms)} |", "|---|" + "---:|" * len(arms)]
    for key in dict.fromkeys((each.workload, each.variant) for each in summary):
        cells = {each.arm: each for each in summary if (each.workload, each.variant) == key}
        best = max(each.out_tokens_s for each in cells.values())
        name = key[0] if key[1] == "exact" else f"{key[0]}, {key[1]}"
        lines.append(f"| {name} | " + " | ".join(_cell(cells.get(arm), best) for arm in arms) + " |")
    return "\n".join(lines) + "\n"


def _cell(figure: Figure | None, best: float) -> str:
    if figure is None:
        return "-"
    out = f"{figure.out_tokens_s:,.0f}"
    bold = f"**{out}**" if figure.out_tokens_s >= best else out
    spread = f" ± {figure.out_spread:,.0f}" if figure.seeds > 1 else ""
    return f"{bold}{spread} ({figure.ttft_p90_s:.2f})"


class Verdict(NamedTuple):
    """Where ours stands on one workload."""

    own: Figure
    out: Figure  # the rival with the most output
    wait: Figure  # the rival with the shortest wait
    blend: Figure | None  # 3/2/2
    blind: Figure | None  # round-robin

    @property
    def name(self) -> str:
        return self.own.workload if self.own.variant == "exact" else f"{self.own.workload}, {self.own.variant}"

    @property
    def of_best(self) -> float:
        return self.own.out_tokens_s / self.out.out_tokens_s

    @property
    def of_blend(self) -> float | None:
        return self.own.out_tokens_s / self.blend.out_tokens_s if self.blend else None

    @property
    def of_blind(self) -> float | None:
        """At the last rung."""
        return self.own.top_out_tokens_s / self.blind.top_out_tokens_s if self.blind else None

    @property
    def later_s(self) -> float:
        return self.own.ttft_p90_s - self.wait.ttft_p90_s


def judged(runs: Iterable[Run], ours: str = "affinity") -> list[Verdict]:
    """Every workload and variant where ours has a rival."""
    here: dict[tuple[str, str], dict[str, Figure]] = {}
    for each in figures(runs):
        here.setdefault((each.workload, each.variant), {})[each.arm] = each
    return [_judged(arms, ours) for arms in here.values() if ours in arms and len(arms) > 1]


def _judged(arms: Mapping[str, Figure], ours: str) -> Verdict:
    rivals = [each for each in arms.values() if each.arm != ours]
    out = max(rivals, key=lambda each: each.out_tokens_s)
    wait = min(rivals, key=lambda each: each.ttft_p90_s)
    return Verdict(arms[ours], out, wait, arms.get("weighted"), arms.get("round_robin"))


def verdicts(judged: Iterable[Verdict]) -> str:
    """Worse or better."""
    lines = [
        "| workload | hit rate | output / best rival | TTFT p90 - best, s | / 3/2/2 | at the top / round-robin |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *map(_line, judged)]) + "\n"


def _line(each: Verdict) -> str:
    cells = [
        each.name,
        f"{each.own.hit_rate:.1%}",
        f"{each.of_best:.3f} ({each.out.arm})",
        f"{each.later_s:+.2f} ({each.wait.arm} {each.wait.ttft_p90_s:.2f})",
        times(each.of_blend),
        times(each.of_blind),
    ]
    return f"| {' | '.join(cells)} |"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def plot_ladder(runs: Sequence[Run], workload: str, path: Path, metadata: Mapping[str, str]) -> None:
    """Output and TTFT p90 over the ladder, one line per arm, mean over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = [run for run in runs if run.workload == workload and run.ladder]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for arm in dict.fromkeys(run.arm for run in chosen):
        mine = [point for run in chosen if run.arm == arm for point in run.ladder]
        rates = sorted({point.rate for point in mine})
        style = {"linewidth": 2.4, "color": "black"} if arm == "affinity" else {"linewidth": 1.2}
        outs = [mean(point.out_tokens_s for point in mine if point.rate == rate) for rate in rates]
        waits = [mean(point.ttft_p90_s for point in mine if point.rate == rate) for rate in rates]
        axes[0].plot(rates, outs, label=arm, **style)
        axes[1].plot(rates, waits, label=arm, **style)
    axes[0].set(xlabel="requests/s", ylabel="output tokens/s", title=f"{workload} (sim)")
    axes[1].set(xlabel="requests/s", ylabel="TTFT p90, s", yscale="log", title=f"{workload} (sim)")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata=dict(metadata))
    pyplot.close(figure)


def plot_workloads(runs: Sequence[Run], path: Path, metadata: Mapping[str, str]) -> None:
    """Mean output of each arm as a share of the best one, by workload."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    summary = [each for each in figures(runs) if each.variant == "exact"]
    workloads = list(dict.fromkeys(each.workload for each in summary))
    arms = list(dict.fromkeys(each.arm for each in summary))
    figure, axis = pyplot.subplots(figsize=(12, 4.2))
    for number, arm in enumerate(arms):
        shares = []
        for workload in workloads:
            best = max(each.out_tokens_s for each in summary if each.workload == workload)
            mine = [each.out_tokens_s for each in summary if each.workload == workload and each.arm == arm]
            shares.append(mine[0] / best if mine else 0.0)
        places = [index + (number - len(arms) / 2) * 0.09 for index in range(len(workloads))]
        axis.bar(places, shares, 0.09, label=arm, **({"color": "black"} if arm == "affinity" else {}))
    axis.set_xticks(range(len(workloads)), workloads)
    axis.set(ylabel="output / best arm", ylim=(0, 1.2), title="mean over the ladder and over seeds (sim)")
    axis.legend(fontsize=7, ncols=5, loc="upper center")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata=dict(metadata))
    pyplot.close(figure)
