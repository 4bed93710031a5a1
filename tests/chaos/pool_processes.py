"""Worker processes of a stateless pool on real services: started, killed, and followed by what they leave in Redis."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from cli.local import ports, probes
from cli.local.process import Child, Part, log_tail
from infra import keys, manifests, redis_client
from infra.blobs import S3Blobs
from infra.clock import SystemClock
from infra.metrics import Metrics
from infra.results import RedisResults
from infra.settings import Secret, Settings
from schemas import codec
from schemas.events import Event
from schemas.jobs import Head
from tests.services import S3
from tests.waiting import until
from topics import admin
from topics.kafka import KafkaProducer


class PoolProcesses:
    """Of one model, that only they know. Those of a test end with it; `command`: how `workers` starts one."""

    command: tuple[str, ...]

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.model = settings.models
        self.clock = SystemClock()
        self.redis = redis_client.connect(settings.redis)
        self.results = RedisResults(self.redis, Metrics())
        self.blobs = S3Blobs(settings)
        self.producer = KafkaProducer(settings.kafka, self.blobs)
        self.children: dict[str, Child] = {}
        self._folder = folder

    async def start(self, worker: str, sim_ms: int, *arguments: str) -> Child:
        """Returns when it has joined its pool."""
        return await self.launch(worker, *arguments, "--engine", "sim", "--sim-ms", str(sim_ms))

    async def launch(self, worker: str, *arguments: str) -> Child:
        part = self._part(worker, ports.free(), list(arguments))
        child = self.children[worker] = Child(part)

        async def serves() -> bool:
            assert child.exit_code() is None, log_tail(part.log)
            return await asyncio.to_thread(part.ready)

        await until(serves, within_s=60, every_s=0.1)
        return child

    def end_all(self) -> None:
        """Cleanly where that is quick: killed members hold up the next test, if it has the same broker."""
        for child in self.children.values():
            child.terminate()
        for child in self.children.values():
            child.end(3)

    async def events(self, head: Head) -> list[Event]:
        """What is stored of it by now."""
        rows = await self.redis.xrange(keys.replay(self.model, head.request_id))
        return [event for _, fields in rows for event in codec.decode_batch(fields[b"b"]).events]

    def _part(self, worker: str, port: int, arguments: list[str]) -> Part:
        chosen = msgspec.structs.replace(self.settings, worker=worker, metrics_port=port)
        plain = msgspec.structs.asdict(Settings())
        environment = {
            f"TRIPTYCH_{name.upper()}": value.value if isinstance(value, Secret) else str(value)
            for name, value in msgspec.structs.asdict(chosen).items()
            if value != plain[name]
        }
        return Part(
            name=worker,
            argv=[sys.executable, "-m", "workers", *self.command, *arguments],
            log=self._folder / f"{worker}.log",
            port=port,
            ready=lambda: probes.http_status(f"http://127.0.0.1:{port}/readyz") == 200,
            start_limit_s=60,
            environment=environment,
        )


P = TypeVar("P", bound=PoolProcesses)


def settings_for(model: str, manifest: str, kafka: str, redis_url: str, s3: S3, folder: Path) -> Settings:
    """The model's manifest is in that folder."""
    (folder / "model.toml").write_text(manifest.format(model=model))
    return Settings(
        kafka=kafka,
        redis=redis_url,
        s3_endpoint=s3.endpoint,
        s3_access_key=Secret(s3.access_key),
        s3_secret_key=Secret(s3.secret_key),
        models=model,
        manifest_dir=str(folder),
        model_dir=str(folder / "models"),
    )


@asynccontextmanager
async def running(make: Callable[[], P]) -> AsyncIterator[P]:
    """With all that it talks to, and the topics of its model."""
    async with AsyncExitStack() as parts:
        world = make()
        await admin.create(world.settings, list(manifests.served(world.settings).values()))
        parts.push_async_callback(world.redis.aclose)
        parts.push_async_callback(world.blobs.close)
        await world.blobs.start()
        parts.push_async_callback(world.producer.close)
        await world.producer.start()
        parts.callback(world.end_all)
        yield world
