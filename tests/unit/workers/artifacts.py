"""Artifacts of few numbers, an object store that fails when told to, and an engine that takes rows."""

import asyncio
import hashlib
import struct

from infra.faults import Unavailable
from infra.memory_blobs import MemoryBlobs
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.media import Artifact, Embeds
from schemas.refs import BlobRef
from topics import safetensors
from workers.engine import EmbedsShape
from workers.engines.stub import StubEngine

WIDTH = 2
PLACEHOLDER = 9


class Store(MemoryBlobs):
    """Counts what is read; `away` fails the next reads, `held` makes all wait."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        self.reads: list[str] = []
        self.at_once = self.most_at_once = 0
        self.held = asyncio.Event()
        self.held.set()

    async def read(self, key: str, most_bytes: int) -> bytes:
        self.reads.append(key)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.held.wait()
            if self.away:
                self.away -= 1
                raise Unavailable("the store is away")
            return await super().read(key, most_bytes)
        finally:
            self.at_once -= 1

    async def add(self, name: str, rows: int, width: int = WIDTH, artifact: Artifact | None = None) -> Embeds:
        """An artifact of embeddings whose numbers are 0, 1, 2...; or another one."""
        whole = artifact or Artifact("embeddings", "fingerprint", name, rows, width, "float32")
        numbers = struct.pack(f"<{rows * width}f", *range(rows * width)) if artifact is None else b""
        return await self.add_raw(name, safetensors.pack(whole, numbers), rows)

    async def add_raw(self, name: str, data: bytes, rows: int) -> Embeds:
        key = f"artifacts/fingerprint/{name}.safetensors"
        await self.put(BlobRef(key, hashlib.sha256(data).hexdigest(), len(data)), data)
        return Embeds(0, rows, key, name)


def stub(step_s: float = 0.001) -> StubEngine:
    """Takes rows as wide as WIDTH in place of PLACEHOLDER."""
    engine = StubEngine(slots=64, step_s=step_s)
    engine.embeds = EmbedsShape(WIDTH, frozenset({PLACEHOLDER}))
    return engine


def prompt_with(*embeds: Embeds, request_id: str = "r", lives_s: float = 60.0, now: float = 0.0) -> GenerateJob:
    """A token, an item, a token, an item, ..., a token."""
    ids, placed = [1], []
    for one in embeds:
        placed.append(Embeds(len(ids), one.length, one.artifact, one.digest))
        ids += [PLACEHOLDER] * one.length + [1]
    head = Head(request_id, "m", deadline_at=now + lives_s, created_at=now, reply_to="gw")
    return GenerateJob(head, ids, Sampling(max_tokens=3, ignore_eos=True), embeds=placed)
