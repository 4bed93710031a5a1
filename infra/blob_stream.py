"""A stream of unknown length and digest -> one object under its content address, over the S3 protocol.

Only when the last byte has been hashed is the final key known. A short stream waits for that in memory; a longer one
goes part by part to a key that nobody else knows, and the server copies it from there.
"""

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from schemas.refs import BlobRef

log = logging.getLogger(__name__)

PART_BYTES = 5 << 20  # the smallest part S3 takes, other than the last
CLEAN_UP_S = 5.0
# Hashing more than this at once would hold up the event loop for longer than a thread's start costs.
INLINE_HASH_BYTES = 256 << 10


class StreamPut:
    """One stream on its way in. Holds at most two parts, whatever the length."""

    def __init__(self, s3: Any, bucket: str, media_type: str, stays: Callable[[str], Awaitable[bool]]) -> None:
        """`stays`: whether an object is there, and need not be written again."""
        self._s3 = s3
        self._bucket = bucket
        self._media_type = media_type
        self._stays = stays
        self._hash = hashlib.sha256()
        self._size_bytes = 0

    async def run(self, folder: str, chunks: AsyncIterator[bytes]) -> BlobRef:
        """Read all of it. What the iterator raises is raised, and then nothing of the stream stays behind."""
        async with aclosing(self._parts(chunks)) as parts:
            first = await anext(parts, b"")
            second = await anext(parts, None)
            if second is not None:
                return await self._staged(folder, [first, second], parts)
        ref = self._ref(folder)
        if not await self._stays(ref.key):
            await self._s3.put_object(Bucket=self._bucket, Key=ref.key, Body=first, ContentType=self._media_type)
        return ref

    async def _staged(self, folder: str, begun: list[bytes], parts: AsyncIterator[bytes]) -> BlobRef:
        where = {"Bucket": self._bucket, "Key": f"staging/{uuid.uuid4().hex}"}
        async with self._multipart(where) as upload_id:
            done: list[dict[str, Any]] = []
            while begun:
                body = begun.pop(0)
                number = len(done) + 1
                answer = await self._s3.upload_part(**where, UploadId=upload_id, PartNumber=number, Body=body)
                done.append({"ETag": answer["ETag"], "PartNumber": number})
                if not begun and (more := await anext(parts, None)) is not None:
                    begun.append(more)
            ref = self._ref(folder)
            if await self._stays(ref.key):
                await self._s3.abort_multipart_upload(**where, UploadId=upload_id)
                return ref
            await self._s3.complete_multipart_upload(**where, UploadId=upload_id, MultipartUpload={"Parts": done})
        try:
            await self._s3.copy_object(Bucket=self._bucket, Key=ref.key, CopySource=where)
        finally:
            await self._cleaned(self._s3.delete_object(**where))
        return ref

    @asynccontextmanager
    async def _multipart(self, where: dict[str, str]) -> AsyncIterator[str]:
        """An upload in parts that leaves nothing behind when it is broken off."""
        begun = await self._s3.create_multipart_upload(**where, ContentType=self._media_type)
        try:
            yield begun["UploadId"]
        except BaseException:
            await self._cleaned(self._s3.abort_multipart_upload(**where, UploadId=begun["UploadId"]))
            raise

    async def _cleaned(self, call: Any) -> None:
        """Tidy up. A failure only costs space, so it must not hide the error, or the success, that we come from."""
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                await call
        except Exception as error:  # noqa: BLE001  # see above
            log.warning("the object store keeps what an upload left behind: %s", error)

    async def _parts(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """The same bytes, hashed, in pieces of PART_BYTES; the last one is what is left, and never empty."""
        piece = bytearray()
        async for chunk in chunks:
            piece += chunk
            while len(piece) >= PART_BYTES:
                yield await self._hashed(bytes(piece[:PART_BYTES]))
                del piece[:PART_BYTES]
        if piece:
            yield await self._hashed(bytes(piece))

    async def _hashed(self, part: bytes) -> bytes:
        if len(part) > INLINE_HASH_BYTES:
            await asyncio.to_thread(self._hash.update, part)
        else:
            self._hash.update(part)
        self._size_bytes += len(part)
        return part

    def _ref(self, folder: str) -> BlobRef:
        digest = self._hash.hexdigest()
        return BlobRef(f"{folder}/{digest}", digest, self._size_bytes, self._media_type)
