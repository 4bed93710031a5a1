"""The object store's in-memory twin. It keeps what it is told for as long as it lives."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

from schemas.refs import BlobRef

CHUNK_BYTES = 64 << 10


class MemoryBlobs:
    """Blobs in one process."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    async def put(self, ref: BlobRef, data: bytes) -> None:
        ref.check(data)
        self._objects[ref.key] = data

    async def put_stream(self, folder: str, chunks: AsyncIterator[bytes], media_type: str) -> BlobRef:
        data = b"".join([chunk async for chunk in chunks])
        digest = hashlib.sha256(data).hexdigest()
        ref = BlobRef(f"{folder}/{digest}", digest, len(data), media_type)
        self._objects.setdefault(ref.key, data)
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        data = self._objects[ref.key]
        ref.check(data)
        return data

    async def read(self, key: str, most_bytes: int) -> bytes:
        data = self._objects[key]
        if len(data) > most_bytes:
            raise ValueError(f"{key} has {len(data)} bytes, more than {most_bytes}")
        return data

    async def stream(self, key: str) -> AsyncGenerator[bytes]:
        data = self._objects[key]
        for begin in range(0, len(data), CHUNK_BYTES):
            yield data[begin : begin + CHUNK_BYTES]

    async def exists(self, key: str) -> bool:
        return key in self._objects

    async def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    async def presign_get(self, key: str, expires_s: int) -> str:
        return f"memory:{key}?expires_s={expires_s}"

    async def presign_put(self, key: str, expires_s: int, size_bytes: int | None = None) -> str:
        return f"memory:{key}?expires_s={expires_s}"

    async def ping(self) -> None:
        """Always reachable."""
