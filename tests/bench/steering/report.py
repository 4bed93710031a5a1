"""The summary as a Markdown table, and the pictures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from tests.bench.steering.rows import Figure, Row, figures


def table(rows: Iterable[Row]) -> str:
    """Mean output tokens/s ± spread over seeds (TTFT p90 at the top rung, s); the best output in bold."""
    summary = figures(rows)
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
    return f"{bold} ± {figure.out_spread:,.0f} ({figure.ttft_p90_s:.2f})"


def verdicts(rows: Iterable[Row], ours: str = "affinity") -> str:
    """Where ours stands on each workload, worse or better."""
    summary = figures(rows)
    lines = [
        "| workload | hit rate | output / best rival | TTFT p90 - best, s | / 3/2/2 | at the top / round-robin |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for key in dict.fromkeys((each.workload, each.variant) for each in summary):
        here = {each.arm: each for each in summary if (each.workload, each.variant) == key}
        rivals = [each for each in here.values() if each.arm != ours]
        if ours in here and rivals:
            lines.append(_verdict(here[ours], here, rivals))
    return "\n".join(lines) + "\n"


def _verdict(own: Figure, here: Mapping[str, Figure], rivals: Sequence[Figure]) -> str:
    out = max(rivals, key=lambda each: each.out_tokens_s)
    wait = min(rivals, key=lambda each: each.ttft_p90_s)
    blend, blind = here.get("weighted"), here.get("round_robin")
    cells = [
        own.workload if own.variant == "exact" else f"{own.workload}, {own.variant}",
        f"{own.hit_rate:.1%}",
        f"{own.out_tokens_s / out.out_tokens_s:.3f} ({out.arm})",
        f"{own.ttft_p90_s - wait.ttft_p90_s:+.2f} ({wait.arm} {wait.ttft_p90_s:.2f})",
        f"{own.out_tokens_s / blend.out_tokens_s:.2f}" if blend else "-",
        f"{own.top_out_tokens_s / blind.top_out_tokens_s:.2f}" if blind else "-",
    ]
    return f"| {' | '.join(cells)} |"


def plot_ladder(rows: Sequence[Row], workload: str, path: Path) -> None:
    """Output and TTFT p90 over the ladder, one line per arm, mean over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = [row for row in rows if row.workload == workload and row.variant == "exact" and row.counted]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for arm in dict.fromkeys(row.arm for row in chosen):
        mine = [row for row in chosen if row.arm == arm]
        rates = sorted({row.rate for row in mine})
        style = {"linewidth": 2.4, "color": "black"} if arm == "affinity" else {"linewidth": 1.2}
        outs = [mean(row.out_tokens_s for row in mine if row.rate == rate) for rate in rates]
        waits = [mean(row.ttft_p90_s for row in mine if row.rate == rate) for rate in rates]
        axes[0].plot(rates, outs, label=arm, **style)
        axes[1].plot(rates, waits, label=arm, **style)
    axes[0].set(xlabel="requests/s", ylabel="output tokens/s", title=f"{workload} (sim)")
    axes[1].set(xlabel="requests/s", ylabel="TTFT p90, s", yscale="log", title=f"{workload} (sim)")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_workloads(rows: Sequence[Row], path: Path) -> None:
    """Mean output of each arm as a share of the best one, by workload."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    summary = [each for each in figures(rows) if each.variant == "exact"]
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
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
