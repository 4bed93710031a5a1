"""Which workers the local stack runs: every pool that the served models need, each in its own size."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGTERM

import msgspec

from cli.errors import CommandFailed
from cli.local import ports, probes
from cli.local.process import Part
from infra.settings import variable
from schemas.manifest import Manifest
from topics import names

# Two vLLM workers that compile and warm up on two slow cores, with room to spare.
WORKER_LIMIT_S = 600.0
MOST_WORKERS = 64


class Pool(msgspec.Struct, frozen=True):
    """`name` is what `--scale` calls it: an LLM's id, or the topic that the pool reads."""

    name: str
    command: list[str]  # of one worker, after `python -m workers`
    workers: int


class Surroundings(msgspec.Struct, frozen=True):
    """What all workers share."""

    logs: Path
    environment: Mapping[str, str]
    stop_limit_s: float


def pools(
    models: Sequence[Manifest],
    *,
    workers: int,
    scale: Mapping[str, int],
    llm_arguments: Sequence[str],
    media_arguments: Sequence[str],
) -> list[Pool]:
    """The pools of these models. `workers` LLM workers are shared out among the LLMs, at least one for each.

    Raises:
        CommandFailed: `scale` names a pool that nobody needs.
    """
    llms = list(dict.fromkeys(one.pool for one in models))
    commands = {model: ["llm", "--model", model, *llm_arguments] for model in llms}
    sizes = {model: max(1, _share(workers, len(llms), number)) for number, model in enumerate(llms)}
    for pool in dict.fromkeys(pool for one in models for pool in one.encoders):
        commands[names.encode(pool)] = ["encode", "--pool", pool, *media_arguments]
    for kind in dict.fromkeys(kind for one in models for kind in one.decoders):
        commands[names.decode(kind)] = ["decode", "--kind", kind, *media_arguments]
    if unknown := sorted(scale.keys() - commands.keys()):
        raise CommandFailed(f"--scale: no pool {', '.join(unknown)}; there are {', '.join(commands)}")
    return [Pool(name, command, scale.get(name, sizes.get(name, 1))) for name, command in commands.items()]


def parts(pools: Sequence[Pool], around: Surroundings) -> list[Part]:
    """One for each worker: LLM workers are llm-0, llm-1, ...; the others are named after their topic."""
    llm = [pool for pool in pools if pool.command[0] == "llm" for _ in range(pool.workers)]
    found = [_part(f"llm-{number}", pool, around) for number, pool in enumerate(llm)]
    for pool in pools:
        if pool.command[0] != "llm":
            name = pool.name.replace(".", "-")
            found += [_part(f"{name}-{number}", pool, around) for number in range(pool.workers)]
    return found


def parse_scale(text: str) -> dict[str, int]:
    """`POOL=N,...` of the command line.

    Raises:
        CommandFailed: it does not read so, or a number is out of range.
    """
    found: dict[str, int] = {}
    for entry in filter(None, (one.strip() for one in text.split(","))):
        name, equals, number = entry.rpartition("=")
        if not equals or not number.isdigit() or int(number) > MOST_WORKERS:
            raise CommandFailed(f"--scale: {entry!r} should read POOL=N, with N from 0 to {MOST_WORKERS}")
        found[name] = int(number)
    return found


def _share(total: int, among: int, number: int) -> int:
    """Of `total` things dealt out in turn, how many the `number`th gets."""
    return total // among + (number < total % among)


def _part(name: str, pool: Pool, around: Surroundings) -> Part:
    port = ports.free()
    return Part(
        name=name,
        argv=[sys.executable, "-m", "workers", *pool.command],
        log=around.logs / f"{name}.log",
        port=port,
        ready=lambda: probes.http_status(f"http://{ports.LOOPBACK}:{port}/readyz") == 200,
        start_limit_s=WORKER_LIMIT_S,
        # A stable name: a worker that comes back takes its own partitions over at once.
        environment={**around.environment, variable("worker"): name, variable("metrics_port"): str(port)},
        stop_limit_s=around.stop_limit_s,
        orphan_signal=SIGTERM,
    )
