"""`stack.json`: describes a running local stack to scripts and to `triptych down`. Gone when the stack is."""

import os
from pathlib import Path

import msgspec
import psutil

from cli.local import ports
from infra.settings import Settings

FILE = "stack.json"
SUPERVISOR = "supervisor"
# Process birth times come from a clock in ticks; two readings of one process differ by less than this.
SAME_BIRTH_S = 1.0


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a running stack are. `births` lets a reader tell a part from a later process of that id."""

    url: str
    bootstrap: str
    redis: str
    s3: str
    broker: str  # "kafka" or "embedded"
    started_at: float  # unix seconds
    supervisor: int  # process id of `triptych up`
    pids: dict[str, int]  # by part
    births: dict[str, float]  # unix seconds, by part and for the supervisor
    models: str = ""  # served, comma-separated


def path(home: Path) -> Path:
    return home / FILE


def read(home: Path) -> StackState | None:
    """None when no stack has been started here, or the file is none of ours."""
    try:
        return msgspec.json.decode(path(home).read_bytes(), type=StackState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def running(home: Path) -> StackState | None:
    """The stack that runs here, at least in part; None when there is none."""
    described = read(home)
    return described if described is not None and ours_alive(described) else None


def applied(settings: Settings, home: Path) -> Settings:
    """These settings, with the addresses and the models of the stack that runs here where one does."""
    stack = running(home)
    if stack is None:
        return settings
    return msgspec.structs.replace(
        settings,
        kafka=stack.bootstrap,
        redis=stack.redis,
        s3_endpoint=stack.s3,
        models=stack.models or settings.models,
    )


def gateway_url(settings: Settings, home: Path) -> str:
    """The running stack's gateway, else the configured one."""
    stack = running(home)
    return stack.url if stack is not None else f"http://{ports.reachable(settings.host)}:{settings.port}"


def write(home: Path, state: StackState) -> None:
    """In one step, so that a reader never sees half a file."""
    home.mkdir(parents=True, exist_ok=True)
    draft = path(home).with_suffix(".tmp")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)) + b"\n")
    draft.replace(path(home))


def remove(home: Path) -> None:
    path(home).unlink(missing_ok=True)


def birth(pid: int) -> float | None:
    """When the process was born, in unix seconds; None when there is none (a zombie counts as none)."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def births_of(pids: dict[str, int]) -> dict[str, float]:
    """Birth times of these and of this process."""
    found = {name: birth(pid) for name, pid in {**pids, SUPERVISOR: os.getpid()}.items()}
    return {name: born for name, born in found.items() if born is not None}


def ours_alive(state: StackState) -> dict[str, int]:
    """The processes of this stack that still run, supervisor included; a reused process id is not ours."""
    alive: dict[str, int] = {}
    for name, pid in {**state.pids, SUPERVISOR: state.supervisor}.items():
        recorded, born = state.births.get(name), birth(pid)
        if recorded is not None and born is not None and abs(born - recorded) < SAME_BIRTH_S:
            alive[name] = pid
    return alive
