"""Decoder processes on real services, asked directly: a model that only they know, jobs produced by hand."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cli.local.process import Child
from infra import keys
from schemas.events import Cancelled, Event, Failed, Finished, Progress
from schemas.jobs import DecodeJob, Head
from schemas.media import ImageOptions, SpeechOptions
from tests.chaos.pool_processes import PoolProcesses, running, settings_for
from tests.services import S3
from tests.waiting import until
from topics import names

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


class Decoders(PoolProcesses):
    """Sends them jobs, and follows what becomes of those."""

    command = ("decode",)

    async def start_kind(self, kind: str, worker: str, step_ms: int) -> Child:
        return await self.start(worker, step_ms, "--kind", kind)

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
    settings = settings_for(f"d-{uuid.uuid4().hex[:8]}", MANIFEST, kafka, redis_url, s3, folder)
    async with running(lambda: Decoders(settings, folder)) as world:
        yield world
