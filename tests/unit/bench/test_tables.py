"""Each bench's figures as a table."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.bench.figures import registry
from tests.bench.steering.rows import Run

GATEWAY_ROW = {
    "stream": False,
    "prompt": "shared system prompt, new question",
    "concurrency": 64,
    "answers_per_s": 1565.2,
    "gateway_cpu_ms": 0.98,
    "worker_cpu_ms": 0.77,
    "added": {"end_p50_ms": 77.86, "end_p99_ms": 135.35},
}
STREAMED = {"stream": True, "added": {"first_p50_ms": 8.73, "end_p50_ms": 8.59, "end_p99_ms": 13.69}}
DATA: dict[str, Mapping[str, Any]] = {
    "gateway": {
        "rows": [
            GATEWAY_ROW,
            GATEWAY_ROW | STREAMED | {"concurrency": 1},
            GATEWAY_ROW | {"prompt": "all new"},
            GATEWAY_ROW | {"prompt": "long"},
        ],
    },
    "streams": {
        "streams": 5000,
        "errors": 0,
        "kib_per_stream": 24.4,
        "first_chunk_alone_p50_ms": 4.0,
        "first_chunk_meanwhile_p50_ms": 5.2,
        "first_chunk_meanwhile_p99_ms": 11.2,
        "open_streams_after": 0.0,
    },
    "prefix_index": {
        "timings": [{"case": "warm", "blocks": 2048, "server_cpu_ms": 1.89, "script_ms": 1.87, "client_ms": 2.11}]
    },
    "results": {
        "rows": [
            {
                "live": 64,
                "events_per_s": 14_566,
                "append_p50_ms": 3.853,
                "append_p99_ms": 13.411,
                "worker_us_per_event": 7.91,
                "redis_us_per_event": 10.92,
                "gateway_us_per_event": 3.17,
            }
        ],
        "idle": {"streams": 5000, "kib_per_stream": 1.92},
    },
    "omni": {
        "wer": 0.028,
        "words": 71,
        "clips": 5,
        "parallel_ratio": 0.42,
        "parallel_encoders": "sim, 400 ms a picture",
    },
}


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ("gateway", "| whole | 64 | 1,565 | - | 77.9 | 135.3 | 0.98 | 1.0 | 0.77 |"),
        ("gateway", "| streamed | 1 | 1,565 | 8.7 | 8.6 | 13.7 | 0.98 | - | 0.77 |"),
        ("gateway_most", "| whole, all new | 64 | 1,565 | - | 77.9 | 135.3 | 0.98 | 1.8 | 0.77 |"),
        ("gateway", "| whole, long | 64 | 1,565 | - | 77.9 | 135.3 | 0.98 | - | 0.77 |"),
        ("streams", "| first chunk of a new request meanwhile, p50 / p99 ms | 5.2 / 11.2 |"),
        ("prefix_index", "| warm | 2,048 | 1.89 | 1.87 | 2.11 |"),
        ("results", "| 64 | 14,566 | 3.85 / 13.41 | 7.9 | 10.9 | 3.2 |"),
        ("results", "5,000 followed requests that nothing comes for: 1.9 KiB each."),
        (
            "omni_most",
            "2.8% of 71 words of 5 recorded readings, transcribed wrongly (cascade); 0.42 of the time of one after the"
            " other, for pictures of one request over two encoders (encoders: sim, 400 ms a picture).",
        ),
        ("omni", "| `wer` | 2.8% | of 71 words of 5 recorded readings, transcribed wrongly | cascade |"),
    ],
)
def test_a_line_of_each_table(block: str, line: str) -> None:
    made = registry.BLOCKS[block]
    assert line in made.table(DATA[made.bench]).splitlines()


def run(arm: str, out: float, wait: float = 1.0, variant: str = "exact", workload: str = "w1", seed: int = 0) -> Run:
    return Run(workload, variant, arm, seed, out, 2 * out, 0.958, 0.9, wait, 2.0)


def steering(block: str, *runs: Run) -> list[str]:
    return registry.BLOCKS[block].table({"runs": runs}).splitlines()


def test_the_headline_has_the_worst_workload_of_all() -> None:
    even = [run("affinity", 100), run("weighted", 80), run("round_robin", 50)]
    worse = [run("affinity", 90, workload="w9"), run("weighted", 100, workload="w9")]
    lines = steering("steering_headline", *even, *worse)
    assert lines[2:] == [
        "| w1 | 1 | 95.8% | 2.00 | 1.25 | 1.250 (`weighted`) |",
        "| worst of 2: w9 | 1 | 95.8% | - | 0.90 | 0.900 (`weighted`) |",
    ]


@pytest.mark.parametrize(
    ("ours", "rivals", "lines"),
    [
        (run("affinity", 100), run("weighted", 90, 2.0), []),
        (run("affinity", 100), run("weighted", 100.1, 1.0), []),
        (run("affinity", 100), run("weighted", 101), ["| w1 | 0.990 (weighted) | - | - |"]),
        (run("affinity", 100, 1.2), run("weighted", 90, 1.0), ["| w1 | - | 1.20 | 1.00 (weighted) |"]),
    ],
)
def test_where_a_rival_has_more_or_is_sooner_is_told(ours: Run, rivals: Run, lines: list[str]) -> None:
    assert steering("steering_behind", ours, rivals)[2:] == lines


def test_a_spread_is_shown_where_there_are_several_seeds() -> None:
    one = [run("affinity", 100), run("weighted", 90)]
    assert "| w1 | **100** (1.00) | 90 (1.00) |" in steering("steering_table", *one)
    two = [*one, run("affinity", 110, seed=1), run("weighted", 90, seed=1)]
    assert "| w1 | **105** ± 5 (1.00) | 90 ± 0 (1.00) |" in steering("steering_table", *two)


def test_numbers_that_pages_quote() -> None:
    handed = [run("affinity", 99, variant="handoff"), run("affinity", 100), run("weighted", 80), run("round_robin", 50)]
    numbers = registry.numbers("steering", {"runs": handed})
    assert numbers["w1.of_round_robin_at_top"] == 2.0
    assert numbers["w1.of_blend"] == numbers["worst_of_best"] == 1.25
    assert numbers["handoff.least"] == numbers["handoff.most"] == 0.99
    formats = [{"format": "mp3", "cpu_ms_per_s": 11.1, "silence_ms": 46.0}]
    assert registry.numbers("speech_files", {"formats": formats})["mp3.cpu_ms_per_s"] == 11.1
