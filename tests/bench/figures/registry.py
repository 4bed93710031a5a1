"""Which block, number and picture is made from which bench's file, and how."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.figures import costs, steering
from tests.bench.steering import pipeline_report, report

Data = Mapping[str, Any]


class Block(NamedTuple):
    bench: str
    table: Callable[[Data], str]


class Picture(NamedTuple):
    """`file` is beside the pages of docs/bench; `draw` puts the metadata into it."""

    file: str
    bench: str
    draw: Callable[[Data, Path, Mapping[str, str]], None]


BLOCKS = {
    "steering_real": Block("steering_real", steering.real),
    "steering_headline": Block("steering", steering.headline),
    "steering_table": Block("steering", steering.table),
    "steering_verdicts": Block("steering", steering.verdicts),
    "steering_redis": Block("steering_redis", steering.verdicts),
    "steering_behind": Block("steering", steering.behind),
    "steering_pipeline": Block("steering_pipeline", steering.pipeline),
    "scaling_ends": Block("steering_scaling", steering.ends),
    "scaling_phases": Block("steering_scaling", steering.phases),
    "omni": Block("omni", costs.omni),
    "omni_most": Block("omni", costs.omni_most),
    "gateway": Block("gateway", costs.gateway),
    "gateway_most": Block("gateway", costs.gateway_most),
    "streams": Block("streams", costs.streams),
    "results": Block("results", costs.results),
    "vllm_truth": Block("vllm_truth", costs.vllm_truth),
    "steering_throttled": Block("steering_throttled", costs.throttled),
    "prefix_index": Block("prefix_index", costs.prefix_index),
}
# Blocks that no bench measures.
LISTS: dict[str, Callable[[], str]] = {"benches": costs.benches}


def _scalars(data: Data) -> dict[str, float]:
    return {name: value for name, value in data.items() if isinstance(value, int | float)}


# Benches whose numbers are not simply those at the top of the file.
NUMBERS: dict[str, Callable[[Data], dict[str, float]]] = {"steering": steering.numbers, "speech_files": costs.formats}


def numbers(bench: str, data: Data) -> dict[str, float]:
    """All numbers of a bench that pages can quote."""
    return NUMBERS.get(bench, _scalars)(data)


def _ladder(workload: str) -> Callable[[Data, Path, Mapping[str, str]], None]:
    return lambda data, path, metadata: report.plot_ladder(steering.runs(data), workload, path, metadata)


def _workloads(data: Data, path: Path, metadata: Mapping[str, str]) -> None:
    report.plot_workloads(steering.runs(data), path, metadata)


def _play(streamed: bool) -> Callable[[Data, Path, Mapping[str, str]], None]:
    def draw(data: Data, path: Path, metadata: Mapping[str, str]) -> None:
        chosen = [each for each in steering.outcomes(data) if each.streamed == streamed]
        pipeline_report.plot_scaling(chosen[0], path, metadata)

    return draw


PICTURES = (
    Picture("steering_workloads.png", "steering", _workloads),
    Picture("steering_w1.png", "steering", _ladder("w1")),
    Picture("steering_w1z.png", "steering", _ladder("w1z")),
    Picture("steering_scaling_whole.png", "steering_scaling", _play(streamed=False)),
    Picture("steering_scaling_streamed.png", "steering_scaling", _play(streamed=True)),
)
