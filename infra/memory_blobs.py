"""The object store's in-memory twin. It keeps what it is told for as long as it lives."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from infra.clock import Clock, SystemClock
from infra.faults import Corrupt, Missing
from infra.hashing import checked, fits
from infra.settings import Settings
from infra.sweeper import Stored
from schemas.refs import BlobRef

CHUNK_BYTES = 64 << 10
PAGE_OBJECTS = 100


class MemoryBlobs:
    """Blobs in one process."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self._half_s = (settings or Settings()).media_ttl_s / 2
        self._clock = clock or SystemClock()
        self._objects: dict[str, bytes] = {}
        self._written_at: dict[str, float] = {}

    async def put(self, ref: BlobRef, data: bytes) -> None:
        fits(ref, data)
        self._write(ref.key, data)

    async def put_stream(self, folder: str, chunks: AsyncIterator[bytes], media_type: str) -> BlobRef:
        data = b"".join([chunk async for chunk in chunks])
        digest = hashlib.sha256(data).hexdigest()
        ref = BlobRef(f"{folder}/{digest}", digest, len(data), media_type)
        if not await self.hold(ref.key):
            self._write(ref.key, data)
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        return await checked(ref, self._there(ref.key))

    async def read(self, key: str, most_bytes: int) -> bytes:
        data = self._there(key)
        if len(data) > most_bytes:
            raise Corrupt(f"{key} has {len(data)} bytes, more than {most_bytes}")
        return data

    async def stream(self, key: str) -> AsyncGenerator[bytes]:
        data = self._there(key)
        for begin in range(0, len(data), CHUNK_BYTES):
            yield data[begin : begin + CHUNK_BYTES]

    async def exists(self, key: str) -> bool:
        return key in self._objects

    async def hold(self, key: str) -> bool:
        if key in self._objects and self._clock.now() - self._written_at[key] > self._half_s:
            self._write(key, self._objects[key])
        return key in self._objects

    async def listing(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        """Sweepable."""
        keys = sorted(key for key in self._objects if key.startswith(prefix))
        for begin in range(0, len(keys), PAGE_OBJECTS):
            there = [key for key in keys[begin : begin + PAGE_OBJECTS] if key in self._objects]
            yield [Stored(key, self._written_at[key], len(self._objects[key])) for key in there]

    async def unfinished(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        """Sweepable. There are none."""
        yield []

    async def discard(self, stored: Sequence[Stored]) -> dict[str, str]:
        """Sweepable."""
        for one in stored:
            await self.delete(one.key)
        return {}

    async def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    async def presign_get(self, key: str, expires_s: int) -> str:
        return f"memory:{key}?expires_s={expires_s}"

    async def presign_put(self, key: str, expires_s: int, size_bytes: int | None = None) -> str:
        return f"memory:{key}?expires_s={expires_s}"

    async def ping(self) -> None:
        """Always reachable."""

    def _there(self, key: str) -> bytes:
        if key not in self._objects:
            raise Missing(key)
        return self._objects[key]

    def _write(self, key: str, data: bytes) -> None:
        self._objects[key] = data
        self._written_at[key] = self._clock.now()
