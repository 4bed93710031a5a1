"""Encoder processes on real services, asked directly: a model that only they know, jobs produced by hand."""

import io
import re
import shutil
import urllib.request
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from cli.local.process import Child
from infra import keys, manifests
from infra.settings import Settings
from schemas import codec
from schemas.jobs import EncodeJob, GenerateJob, Head, Sampling
from schemas.media import Room, Slot
from schemas.refs import BlobRef, payload_ref
from tests.chaos.pool_processes import PoolProcesses, running, settings_for
from tests.contracts.topics_behind import read_all
from tests.services import S3
from tests.waiting import until
from topics import names
from topics.fingerprints import artifact_key, fingerprint

MANIFEST = """
id = "{model}"
partitions = 1
handoff = "text"
capabilities = ["chat", "image_in"]
[source]
kind = "hf"
repo = "tests/{model}"
[limits]
context_tokens = 4096
[encoders.vision]
engine = "labels-ocr"
yields = "text"
weights = "eye"
[weights.eye]
kind = "hf"
repo = "tests/{model}-eye"
"""
TOPIC = names.encode("vision")
DATA = Path(__file__).parents[1] / "data"


class EncoderProcesses(PoolProcesses):
    """Sends them jobs, and sees what comes of those."""

    command = ("encode", "--pool", "vision")

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__(settings, folder)
        self.manifest = manifests.find(settings, self.model)
        self._turn = 0

    async def pictures(self, count: int) -> list[BlobRef]:
        """New ones."""
        return [await self._picture() for _ in range(count)]

    async def _picture(self) -> BlobRef:
        noise = np.random.default_rng(uuid.uuid4().int).integers(0, 256, (16, 16, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise).save(file, "PNG")
        ref = payload_ref(file.getvalue(), "image/png")
        ref = msgspec.structs.replace(ref, key=f"media/{ref.digest}")
        await self.blobs.put(ref, file.getvalue())
        return ref

    async def ask(self, pictures: Sequence[BlobRef], seconds: float = 90.0) -> Head:
        """One request about all of these."""
        now = self.clock.now()
        head = Head(uuid.uuid4().hex, self.model, now + seconds, now, f"gw-{self.model}")
        slots = [self._slot(number, one) for number, one in enumerate(pictures)]
        draft = GenerateJob(head, [1, 2, 3], Sampling(max_tokens=1))
        for number in range(len(slots)):
            self._turn += 1
            job = EncodeJob(head, slots, number, draft, Room(4096))
            await self.producer.send(TOPIC, job, partition=self._turn % names.POOL_PARTITIONS)
        return head

    def _slot(self, number: int, source: BlobRef) -> Slot:
        key = artifact_key(fingerprint(self.manifest, "vision"), source.digest)
        param = f"messages[0].content[{number}]"
        return Slot(1, "image", "vision", f"{self.model}/vision", source, key, param)

    async def sent(self, head: Head) -> list[GenerateJob]:
        """The generate jobs of this request so far, without the ways they took."""
        values = await read_all(self.settings.kafka, names.generate(self.model), 0)
        jobs = [codec.decode_message(one) for one in values]
        return [
            msgspec.structs.replace(one, placement=None)
            for one in jobs
            if isinstance(one, GenerateJob) and one.head.request_id == head.request_id
        ]

    async def joined(self, head: Head, within_s: float = 60.0) -> GenerateJob:
        async def has_joined() -> bool:
            return bool(await self.redis.exists(keys.joined(head.request_id)))

        await until(has_joined, within_s)
        return (await self.sent(head))[0]

    def counted(self, how: str) -> dict[str, int]:
        """By living worker: how many items were made, reused or failed."""
        return {name: self._count(child, how) for name, child in self.children.items() if child.exit_code() is None}

    def _count(self, child: Child, how: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{child.part.port}/metrics", timeout=5) as answer:
            page = answer.read().decode()
        found = re.findall(rf'^triptych_encoded_items_total{{.*how="{how}".*}} ([0-9.]+)$', page, re.MULTILINE)
        return int(sum(map(float, found)))


@asynccontextmanager
async def encoders(kafka: str, redis_url: str, s3: S3, folder: Path) -> AsyncIterator[EncoderProcesses]:
    settings = settings_for(f"e-{uuid.uuid4().hex[:8]}", MANIFEST, kafka, redis_url, s3, folder)
    tokenizer(folder / "models" / settings.models)
    async with running(lambda: EncoderProcesses(settings, folder)) as world:
        yield world


def tokenizer(folder: Path) -> None:
    """All that encoders need of an LLM."""
    folder.mkdir(parents=True)
    shutil.copy(DATA / "tiny_tokenizer.json", folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "config.json").write_text('{"vocab_size": 512}')
