"""`python -m tests.bench.all`: every bench once, in small, to see that each still works and writes its figures.

`--full` runs what is published: hours, most of them for the steering sweep, which goes on where it was stopped. With
`--out docs/bench/data`, `make figures` takes the figures from there. Exits with 1 when a bench failed.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.bench.benches import BENCHES, BY_NAME, Bench
from tests.bench.published import ROOT

OWN = Path(".triptych/bench")
SMALL_LIMIT_S = 900.0
SLOWER = 4  # than on two cores that nobody else uses; past it a full bench is ended
STOP_LIMIT_S = 60.0  # for a bench to end what it has started


class Result(msgspec.Struct, frozen=True):
    name: str
    seconds: float
    problem: str  # empty: it has worked


def run(bench: Bench, folder: Path, *, full: bool) -> Result:
    """In a process of its own; what it prints goes into OWN."""
    made, log = folder / f"{bench.name}.json", OWN / f"{bench.name}.log"
    OWN.mkdir(parents=True, exist_ok=True)
    limit_s = bench.minutes * 60 * SLOWER if full else SMALL_LIMIT_S
    since, began_at = time.time(), time.monotonic()
    with log.open("wb") as output:
        command = [sys.executable, "-m", bench.module, *bench.arguments(folder, full=full)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        problem = _ended(process, limit_s)
    if not problem and not (made.exists() and made.stat().st_mtime >= since - 1):
        problem = "it has written no figures"
    return Result(bench.name, time.monotonic() - began_at, f"{problem}; see {log}" if problem else "")


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> str:
    """Why it did not end well; empty where it did."""
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)
        process.kill()
        process.wait()
        return f"not within {limit_s:.0f} s"
    return f"exit status {status}" if status else ""


def table(results: Sequence[Result]) -> str:
    lines = [f"{each.name:20} {each.seconds:7.0f} s   {each.problem or 'ok'}" for each in results]
    failed = sum(bool(each.problem) for each in results)
    return "\n".join([*lines, f"{len(results)} run, {failed} failed"])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.all", description=__doc__)
    made.add_argument("--full", action="store_true", help="what is published, instead of a small piece of each")
    made.add_argument("--out", type=Path, default=OWN, help="where the figures go")
    made.add_argument("--only", type=_names, default=list(BENCHES), help=f"of {', '.join(BY_NAME)}, comma separated")
    return made


def _names(given: str) -> list[Bench]:
    unknown = set(given.split(",")) - set(BY_NAME)
    if unknown:
        raise argparse.ArgumentTypeError(f"no bench {', '.join(sorted(unknown))}")
    return [BY_NAME[name] for name in given.split(",")]


def results(benches: Sequence[Bench], folder: Path, *, full: bool) -> Iterator[Result]:
    for bench in benches:
        print(f"{bench.name}: {bench.command(folder, full=full)}", flush=True)
        yield run(bench, folder, full=full)


def main() -> None:
    given = parser().parse_args()
    done = list(results(given.only, given.out, full=given.full))
    print(table(done))
    if any(each.problem for each in done):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
