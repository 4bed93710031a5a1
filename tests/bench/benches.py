"""Every bench: its command in full and in small, and the file of figures that it makes."""

import importlib
import shlex
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import msgspec


class Bench(msgspec.Struct, frozen=True):
    """One published file, docs/bench/data/<name>.json."""

    name: str
    module: str  # python -m ...
    about: str
    full: tuple[str, ...] = ()  # what is published is made with these
    small: tuple[str, ...] = ()  # enough to see that it works
    mode: tuple[str, ...] = ()  # which of several things the module does; goes with both
    minutes: int = 1  # of the full one, on two cores that nobody else uses
    output: str = "--json"

    def arguments(self, folder: Path, *, full: bool) -> list[str]:
        """Of the module; `folder` is where its figures go."""
        sizes = self.full if full else self.small
        filled = [each.format(folder=folder) for each in sizes]
        return [*self.mode, *filled, self.output, str(folder / f"{self.name}.json")]

    def command(self, folder: Path, *, full: bool = True) -> str:
        return shlex.join(["python", "-m", self.module, *self.arguments(folder, full=full)])

    def covers(self, module: str, arguments: Sequence[str]) -> bool:
        """It is this bench that such a command runs, in whatever size."""
        return module == self.module and set(self.mode) <= set(arguments)


_STEERING = "tests.bench.steering"
BENCHES = (
    Bench("speech_files", "tests.bench.speech_files", "processor time of speech as mp3, opus and aac"),
    Bench("prefix_index", "tests.bench.prefix_index", "what one steering decision costs Redis",
          small=("--calls", "20")),
    Bench("results", "tests.bench.results", "what the result path from worker to gateway costs"),
    Bench("gateway", "tests.bench.gateway", "what the pipeline adds to an engine",
          small=("--seconds", "1", "--broker", "embedded"), minutes=3),
    Bench("streams", "tests.bench.streams", "thousands of open streams on one gateway",
          small=("--streams", "200", "--tokens", "3"), minutes=2),
    Bench("steering_real", "tests.bench.steering_real", "prefix hits and waiting on the real engine",
          small=("--rounds", "2"), minutes=8),
    Bench("steering_throttled", "tests.bench.steering_real", "what a throttled worker of the real engine gets",
          small=("--arms", "affinity"), mode=("--throttle", "0.4"), minutes=8),
    Bench("vllm_truth", "tests.bench.vllm_truth", "what steering learns of the real engine beside what is so",
          small=("--shares", "1"), minutes=5),
    # The rows of thousands of rungs stay where they can be resumed; what is published is their summary.
    Bench("steering", _STEERING, "every policy on every workload, in the worker model",
          full=("--variants", "exact,late,gateways4,handoff", "--json", ".triptych/bench/steering_rows.json",
                "--resume"),
          small=("--workload", "w1h", "--arms", "affinity,weighted,round_robin", "--seeds", "1"),
          minutes=120, output="--summary"),
    Bench("steering_redis", _STEERING, "the same decided on Redis, by the scripts of production",
          full=("--workload", "w1h,w1z,w1", "--arms", "affinity,weighted,weighted_active,affinity_filter,round_robin",
                "--seeds", "1", "--json", ".triptych/bench/steering_redis_rows.json", "--resume"),
          small=("--workload", "w1h", "--arms", "affinity", "--seeds", "1"),
          mode=("--through", "redis"), minutes=30, output="--summary"),
    Bench("steering_pipeline", _STEERING, "the worker model behind the real pipeline, beside the model alone",
          small=("--speedup", "3", "--arms", "round_robin,affinity"), mode=("--mode", "pipeline"), minutes=6),
    Bench("steering_scaling", _STEERING, "workers that join, stop and die under load",
          small=("--answers", "streamed"), mode=("--scaling",), minutes=5),
    Bench("omni", "tests.bench.omni", "how well the whole pipeline sees, draws, hears and speaks",
          small=("--size", "8"), minutes=10),
)  # fmt: skip
BY_NAME = {each.name: each for each in BENCHES}


def of_command(module: str, arguments: Sequence[str]) -> Bench | None:
    """The bench with the most particular mode that covers it."""
    fitting = [each for each in BENCHES if each.covers(module, arguments)]
    return max(fitting, key=lambda each: len(each.mode), default=None)


def parser(module: str) -> ArgumentParser:
    """How that module reads its command line."""
    is_package = (Path(__file__).parents[2] / Path(*module.split("."))).is_dir()
    made = importlib.import_module(f"{module}.__main__" if is_package else module).parser()
    assert isinstance(made, ArgumentParser)
    return made
