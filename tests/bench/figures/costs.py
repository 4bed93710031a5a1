"""Tables and numbers of the benches that measure the pipeline's own parts, and of the omni path."""

from collections.abc import Mapping
from typing import Any

from tests.bench.benches import BENCHES
from tests.bench.figures.data import FOLDER

Data = Mapping[str, Any]

# Prompts that go without saying.
SHARED = "shared system prompt, new question"
# What the gateway's cost was aimed at, at the most requests at once.
AIMS_MS = {"whole": 1.0, "streamed": 1.5, "whole, all new": 1.8}


def benches() -> str:
    """The table of what makes which file."""
    lines = ["| file in `data/` | made by | measures | minutes |", "|---|---|---|---:|"]
    for each in BENCHES:
        command = each.command(FOLDER)
        lines.append(f"| `{each.name}.json` | `{command}` | {each.about} | {each.minutes} |")
    return "\n".join(lines) + "\n"


def vllm_truth(data: Data) -> str:
    """Learned beside measured times of the real engine."""
    lines = ["| engine may run | what | measured, ms | learned, ms | ratio |", "|---:|---|---:|---:|---:|"]
    for run in data["speed"]:
        rows = [(f"a step of {one['sequences']} sequences", one) for one in run["held"]]
        rows += [(f"a prompt of {one['tokens']} tokens", one) for one in run["prompts"]]
        for what, one in rows:
            measured, learned = one["measured_s"] * 1e3, one["learned_s"] * 1e3
            lines.append(f"| {run['share']:.0%} | {what} | {measured:.1f} | {learned:.1f} | {learned / measured:.2f} |")
    memory = data["memory"]
    lines.append(
        f"\nUnused blocks, over {memory['steps']} steps: told exactly in {memory['exact_steps']}, at most "
        f"{memory['derived_too_low_by']} too few and {memory['derived_too_high_by']} too many."
    )
    return "\n".join(lines) + "\n"


def throttled(data: Data) -> str:
    lines = ["| policy | slow worker runs | its requests | its due | by learned speeds |", "|---|---:|---:|---:|---:|"]
    for row in data["rows"]:
        shares = f"{row['slow_share']:.1%} | {row['due_share']:.1%} | {row['learned_share']:.1%}"
        lines.append(f"| `{row['policy']}` | {row['share']:.0%} of the time | {shares} |")
    return "\n".join(lines) + "\n"


def gateway_most(data: Data) -> str:
    """One at once, and as many as were tried."""
    counts = {row["concurrency"] for row in data["rows"]}
    return gateway({"rows": [row for row in data["rows"] if row["concurrency"] in (min(counts), max(counts))]})


def gateway(data: Data) -> str:
    lines = [
        "| answer (stub engine) | at once | answers/s | added to the first chunk, p50 ms | to the end, p50 ms |"
        " p99 ms | gateway CPU, ms an answer | aim | worker loop CPU, ms |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    most = max(row["concurrency"] for row in data["rows"])
    for row in data["rows"]:
        kind = ("streamed" if row["stream"] else "whole") + ("" if row["prompt"] == SHARED else f", {row['prompt']}")
        added, first = row["added"], row["added"].get("first_p50_ms")
        cells = [
            kind,
            str(row["concurrency"]),
            f"{row['answers_per_s']:,.0f}",
            "-" if first is None else f"{first:.1f}",
            f"{added['end_p50_ms']:.1f}",
            f"{added['end_p99_ms']:.1f}",
            f"{row['gateway_cpu_ms']:.2f}",
            f"{AIMS_MS[kind]:.1f}" if row["concurrency"] == most and kind in AIMS_MS else "-",
            f"{row['worker_cpu_ms']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def results(data: Data) -> str:
    lines = [
        "| requests at once | events/s | append, p50 / p99 ms | worker CPU, us an event | Redis | gateway |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in data["rows"]:
        cells = [
            str(row["live"]),
            f"{row['events_per_s']:,.0f}",
            f"{row['append_p50_ms']:.2f} / {row['append_p99_ms']:.2f}",
            *(f"{row[f'{part}_us_per_event']:.1f}" for part in ("worker", "redis", "gateway")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    idle = data["idle"]
    told = f"{idle['streams']:,} followed requests that nothing comes for: {idle['kib_per_stream']:.1f} KiB each."
    return "\n".join([*lines, "", told]) + "\n"


def streams(data: Data) -> str:
    rows = {
        "open streams": f"{data['streams']:,}",
        "errors": str(data["errors"]),
        "memory of the gateway, KiB a stream": f"{data['kib_per_stream']:.1f}",
        "first chunk of a new request, nothing else open, p50 ms": f"{data['first_chunk_alone_p50_ms']:.1f}",
        "first chunk of a new request meanwhile, p50 / p99 ms": f"{data['first_chunk_meanwhile_p50_ms']:.1f}"
        f" / {data['first_chunk_meanwhile_p99_ms']:.1f}",
        "streams left afterwards": f"{data['open_streams_after']:.0f}",
    }
    lines = [
        "| one gateway (stub engine) | |",
        "|---|---:|",
        *(f"| {name} | {value} |" for name, value in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def prefix_index(data: Data) -> str:
    lines = ["| case | blocks | server CPU, ms | script, ms | client, ms |", "|---|---:|---:|---:|---:|"]
    for each in data["timings"]:
        times = " | ".join(f"{each[name]:.2f}" for name in ("server_cpu_ms", "script_ms", "client_ms"))
        lines.append(f"| {each['case']} | {each['blocks']:,} | {times} |")
    return "\n".join(lines) + "\n"


OMNI = {
    "digit_accuracy": ("{:.1%}", "of {digits_shown} held-out handwritten digits, three wordings, greedy", "omni-tiny"),
    "digits_in_8": ("{:.1%}", "of held-out digits, eight in one question ({questions_with_8} questions)", "omni-tiny"),
    "drawn_accuracy": (
        "{:.1%}",
        "of {digits_drawn} digits asked for, as an independent classifier reads them",
        "omni-tiny",
    ),
    "wer": ("{:.1%}", "of {words} words of {clips} recorded readings, transcribed wrongly", "cascade"),
    "speech_roundtrip": ("{:.1%}", "of {sentences} sentences spoken, then transcribed, word for word", "cascade"),
    "text_read": ("{:.1%}", "of English and Korean lines in pictures, read exactly", "cascade"),
    "second_turn_hit": (
        "{:.1%}",
        "of a second user's prompt about a picture, on another gateway, in the KV cache",
        "omni-tiny",
    ),
    "encoded": ("{:.0f}", "times that picture was encoded, its encoder killed in between", "omni-tiny"),
    "parallel_ratio": (
        "{:.2f}",
        "of the time of one after the other, for pictures of one request over two encoders",
        "encoders: {parallel_encoders}",
    ),
}


def omni(data: Data) -> str:
    lines = ["| figure | | of | model |", "|---|---:|---|---|"]
    for name, (how, about, model) in OMNI.items():
        if name in data:
            lines.append(f"| `{name}` | {how.format(data[name])} | {about.format(**data)} | {model.format(**data)} |")
    return "\n".join(lines) + "\n"


# What the README says of the omni path.
SAID = ("digit_accuracy", "drawn_accuracy", "wer", "second_turn_hit", "parallel_ratio")


def omni_most(data: Data) -> str:
    """In a sentence."""
    parts = []
    for name in SAID:
        if name in data:
            how, about, model = OMNI[name]
            parts.append(f"{how.format(data[name])} {about.format(**data)} ({model.format(**data)})")
    return "; ".join(parts) + ".\n"


def formats(data: Data) -> dict[str, float]:
    made = {}
    for each in data["formats"]:
        made[f"{each['format']}.cpu_ms_per_s"] = each["cpu_ms_per_s"]
        made[f"{each['format']}.silence_ms"] = each["silence_ms"]
    return made
