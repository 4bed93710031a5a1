"""The JSON that every bench writes: its figures, under a head that says what made them."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

ROOT = Path(__file__).parents[2]
# sim: a modelled worker, nothing is computed; stub: tokens at a given pace, no model runs; vllm: the real engine with
# real models; none: no engine takes part.
Engine = Literal["sim", "stub", "vllm", "none"]


class Machine(msgspec.Struct, frozen=True):
    processor: str
    cores: int
    memory_gib: int
    load: float  # runnable processes, mean of the minute before it was written; what the bench itself took included


class Head(msgspec.Struct, frozen=True):
    command: str
    commit: str  # "+changes": not all code was committed
    date: str  # UTC
    machine: Machine
    engine: Engine


def head(engine: Engine) -> Head:
    """Of what this process measures."""
    return Head(_command(), _commit(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), _machine(), engine)


def write(path: Path, engine: Engine, figures: object) -> None:
    """`figures`: a struct or a mapping whose members go beside the head. The file is replaced as a whole."""
    members: Mapping[str, Any] = msgspec.to_builtins(figures)
    made = {"head": msgspec.to_builtins(head(engine)), **members}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(_lines(made) + "\n", encoding="utf-8")
    fresh.replace(path)


def _lines(made: Mapping[str, Any]) -> str:
    """A line for each member, and for each item of a list of objects, so that differences can be read."""
    members = []
    for name, value in made.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n  ".join(_json(item) for item in value)
            members.append(f" {_json(name)}: [\n  {items}\n ]")
        else:
            members.append(f" {_json(name)}: {_json(value)}")
    return "{\n" + ",\n".join(members) + "\n}"


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _command() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = spec.name.removesuffix(".__main__") if spec else sys.argv[0]
    return shlex.join(["python", "-m", module, *sys.argv[1:]])


def _commit() -> str:
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!*.md")
    return f"{commit}+changes" if changed else commit


def _git(*arguments: str) -> str:
    """Empty where this is no checkout."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _machine() -> Machine:
    memory_gib = round(psutil.virtual_memory().total / 2**30)
    return Machine(_processor(), os.cpu_count() or 1, memory_gib, round(os.getloadavg()[0], 1))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0].replace("(R)", "").replace("(TM)", "") if names else "unknown"
