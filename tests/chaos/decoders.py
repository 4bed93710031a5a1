"""Decoder processes on real services, asked directly: a model that only they know, jobs produced by hand."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

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
from schemas.events import Cancelled, Event, Failed, Finished, Progress
from schemas.jobs import DecodeJob, Head
from schemas.media import ImageOptions, SpeechOptions
from tests.services import S3
from tests.waiting import until
from topics import admin, names
from topics.kafka import KafkaProducer

MANIFEST = """
id = "{model}"
partitions = 1
capabilities = ["chat", "image_out", "speech_out"]
[source]
kind = "hf"
repo = "tests/none"
[limits]
context_tokens = 64
[decoders.image]
engine = "digits"
begin = "<b>"
end = "<e>"
first = "<0>"
last = "<9>"
[decoders.audio]
engine = "hibari"
voices = ["heart"]
"""


class Decoders:
    """Starts and kills them, sends them jobs, and follows what becomes of those."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.model = settings.models
        self.clock = SystemClock()
        self.redis = redis_client.connect(settings.redis)
        self.results = RedisResults(self.redis, Metrics())
        self.blobs = S3Blobs(settings)
        self.producer = KafkaProducer(settings.kafka, self.blobs)
        self._folder = folder
        self.children: dict[str, Child] = {}

    async def start(self, kind: str, worker: str, step_ms: int) -> Child:
        """Returns when it has joined its pool."""
        port = ports.free()
        chosen = msgspec.structs.replace(self.settings, worker=worker, metrics_port=port)
        environment = {
            f"TRIPTYCH_{name.upper()}": value.value if isinstance(value, Secret) else str(value)
            for name, value in msgspec.structs.asdict(chosen).items()
            if value != msgspec.structs.asdict(Settings())[name]
        }
        argv = [sys.executable, "-m", "workers", "decode", "--kind", kind, "--engine", "sim", "--sim-ms", str(step_ms)]
        part = Part(
            name=worker,
            argv=argv,
            log=self._folder / f"{worker}.log",
            port=port,
            ready=lambda: probes.http_status(f"http://127.0.0.1:{port}/readyz") == 200,
            start_limit_s=60,
            environment=environment,
        )
        child = self.children[worker] = Child(part)

        async def serves() -> bool:
            assert child.exit_code() is None, log_tail(part.log)
            return await asyncio.to_thread(part.ready)

        await until(serves, within_s=60, every_s=0.1)
        return child

    def kill_all(self) -> None:
        for child in self.children.values():
            child.kill()

    def head(self, parent: str = "") -> Head:
        now = self.clock.now()
        return Head(uuid.uuid4().hex, self.model, now + 60, now, f"gw-{self.model}", streamed=True, parent=parent)

    async def draw(self, *, steps: int, parent: str = "") -> Head:
        options = ImageOptions(width=16, height=16, steps=steps, seed=1)
        job = DecodeJob(self.head(parent), f"{self.model}/image", options, codes=[1, 2])
        await self.producer.send(names.decode("image"), job)
        return job.head

    async def say(self, text: str) -> Head:
        job = DecodeJob(self.head(), f"{self.model}/audio", SpeechOptions(chunked=True), text=text)
        await self.producer.send(names.decode("audio"), job)
        return job.head

    async def events(self, head: Head) -> list[Event]:
        """What is stored of it by now."""
        rows = await self.redis.xrange(keys.replay(self.model, head.request_id))
        return [event for _, fields in rows for event in codec.decode_batch(fields[b"b"]).events]

    async def ended(self, head: Head, within_s: float = 50.0) -> list[Event]:
        """All that became of it."""

        async def has_ended() -> bool:
            return any(isinstance(one, (Finished, Failed, Cancelled)) for one in await self.events(head))

        await until(has_ended, within_s)
        return await self.events(head)

    async def began(self, head: Head, kind: type[Event] = Progress, count: int = 1) -> str:
        """Wait for that many events of a kind; the name of the decoder that works on it."""

        async def has_begun() -> bool:
            return sum(isinstance(one, kind) for one in await self.events(head)) >= count

        await until(has_begun, 30)
        return await self.owner(head)

    async def taken(self, head: Head) -> None:
        """Wait until a decoder has claimed it, which it does before its turn comes."""

        async def has_owner() -> bool:
            return bool(await self.owner(head))

        await until(has_owner, 30)

    async def owner(self, head: Head) -> str:
        (owner,) = await self.redis.hmget(keys.request(self.model, head.request_id), ["owner"])
        return (owner or b"").decode().rpartition(":")[0]


@asynccontextmanager
async def decoders(kafka: str, redis_url: str, s3: S3, folder: Path) -> AsyncIterator[Decoders]:
    model = f"d-{uuid.uuid4().hex[:8]}"
    (folder / "model.toml").write_text(MANIFEST.format(model=model))
    settings = Settings(
        kafka=kafka,
        redis=redis_url,
        s3_endpoint=s3.endpoint,
        s3_access_key=Secret(s3.access_key),
        s3_secret_key=Secret(s3.secret_key),
        models=model,
        manifest_dir=str(folder),
    )
    await admin.create(settings, list(manifests.served(settings).values()))
    async with AsyncExitStack() as parts:
        world = Decoders(settings, folder)
        parts.push_async_callback(world.redis.aclose)
        parts.push_async_callback(world.blobs.close)
        await world.blobs.start()
        parts.push_async_callback(world.producer.close)
        await world.producer.start()
        parts.callback(world.kill_all)
        yield world
