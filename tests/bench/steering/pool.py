"""The processes of a whole pipeline: broker, Valkey, object store and workers with the sim engine, as a user runs them.

Start workers from the main thread only (see cli/local/process.py).
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import msgspec

from cli.local import broker, ports, probes, s3, valkey
from cli.local.process import Child, Part, running, wait_ready
from infra import manifests, model_paths
from infra.settings import Secret, Settings, variable
from schemas.manifest import Manifest
from tests.bench.steering.traffic import BLOCK
from topics import admin

ACCESS_KEY, SECRET_KEY = "triptych-bench", "triptych-bench-secret"
START_LIMIT_S = 60.0
# A stopped worker lets running work finish so long: an answer of the scaled workloads takes 3 to 10 s.
DRAIN_S = 20
STOP_LIMIT_S = DRAIN_S + 10.0

MANIFEST = """\
id = "{model}"
partitions = {partitions}

[source]
kind = "hf"  # never fetched: the sim engine has no weights
repo = "none/none"

[limits]
context_tokens = 65536

[engine]
block_tokens = {block}
cpu_block_tokens = {block}
"""


class World(msgspec.Struct, frozen=True):
    """Where the services are, and the processes that are ours."""

    settings: Settings
    folder: Path
    pids: dict[str, int] = {}

    async def serve(self, model: str, partitions: int = 12) -> Manifest:
        """Describe a model of the benchmark's block size and make its topics."""
        path = Path(self.settings.manifest_dir) / f"{model}.toml"
        path.write_text(MANIFEST.format(model=model, partitions=partitions, block=BLOCK))
        manifest = manifests.read(path)
        # No model runs, but the chat template is a part of what keys are made with.
        files = model_paths.of_llm(manifest, Path(self.settings.model_dir))
        files.mkdir(parents=True, exist_ok=True)
        (files / "tokenizer_config.json").write_text("{}")
        await admin.create(self.settings, [manifest])
        return manifest


@contextmanager
def services(folder: Path, wish: str) -> Iterator[World]:
    """Broker (`wish`: embedded or kafka), Valkey and S3 server for as long as the block lasts.

    Raises:
        PartFailed: one of them does not come up.
    """
    at = {name: ports.free() for name in ("broker", "valkey", "s3")}
    parts = [
        broker.part(broker.broker_kind(wish), at["broker"], folder / "broker.log", folder / "broker"),
        valkey.part(at["valkey"], folder / "valkey.log"),
        s3.part(at["s3"], folder / "s3.log", folder / "s3", ACCESS_KEY, SECRET_KEY),
    ]
    described = folder / "manifests"
    described.mkdir(parents=True)
    settings = Settings(
        kafka=broker.bootstrap(at["broker"]),
        redis=valkey.url(at["valkey"]),
        s3_endpoint=s3.endpoint(at["s3"]),
        s3_access_key=Secret(ACCESS_KEY),
        s3_secret_key=Secret(SECRET_KEY),
        manifest_dir=str(described),
        model_dir=str(folder / "models"),
    )
    with ExitStack() as stack:
        pids = {part.name: stack.enter_context(running(part)).pid for part in parts}
        yield World(settings, folder, pids)


class Workers:
    """Worker processes of one model, by name. On leaving, all that still run are stopped, finished work or not."""

    def __init__(self, world: World, model: str, speedup: float = 1.0) -> None:
        self._world = world
        self._model = model
        self._speedup = speedup
        self._running: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running.values():
            child.terminate()
        for child in self._running.values():
            child.end(STOP_LIMIT_S)

    @property
    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._running.items() if child.exit_code() is None}

    def start(self, *names: str) -> None:
        """Begin to start them, under names that a later life may take again."""
        for name in names:
            self._running[name] = Child(self._part(name))

    def wait_ready(self) -> None:
        """Raises PartFailed: one ended, or did not serve in time."""
        for child in self._running.values():
            wait_ready(child)

    def stop(self, name: str) -> None:
        """SIGTERM: it finishes what it runs."""
        self._running[name].terminate()

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._running[name].kill()

    def _part(self, name: str) -> Part:
        settings, port = self._world.settings, ports.free()
        command = [sys.executable, "-m", "workers", "llm", "--model", self._model, "--engine", "sim"]
        values = {
            "kafka": settings.kafka,
            "redis": settings.redis,
            "s3_endpoint": settings.s3_endpoint,
            "s3_access_key": settings.s3_access_key.value,
            "s3_secret_key": settings.s3_secret_key.value,
            "manifest_dir": settings.manifest_dir,
            "model_dir": settings.model_dir,
            "worker": name,
            "metrics_port": str(port),
            "drain_s": str(DRAIN_S),
        }
        return Part(
            name=name,
            argv=[*command, "--speedup", f"{self._speedup:g}"],
            log=self._world.folder / f"{self._model}-{name}.log",
            port=port,
            ready=lambda: probes.http_status(f"http://{ports.LOOPBACK}:{port}/readyz") == 200,
            start_limit_s=START_LIMIT_S,
            environment={variable(field): value for field, value in values.items()},
            stop_limit_s=STOP_LIMIT_S,
        )
