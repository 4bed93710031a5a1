"""Files that clients upload once and then name by id: through us, or straight to the object store.

An id is all one needs to use a file, so it cannot be guessed. What lies under a file's digest stays in the store when
the file is deleted or has expired: other files and running requests may mean the same bytes.
"""

import asyncio
import re
import secrets
import unicodedata
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec

from infra.clock import Clock
from infra.faults import Missing
from infra.file_records import FileRecords
from infra.ports import Blobs
from schemas.errors import TriptychError
from schemas.files import FileRecord, Purpose, UploadRequest, UploadTarget
from schemas.refs import BlobRef
from topics.intake.faults import MediaFault
from topics.intake.storing import store

# How long a client has for an upload straight to the store.
UPLOAD_URL_S = 900
RETRY_AFTER_S = 1

MOST_FILENAME_CHARS = 255
# A file name of nothing but a path.
NAMELESS = "file"
# Control characters, those that turn the direction of text, ends of lines; but not those that join letters, or signs.
_UNSEEN = ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")
_JOINERS = "\u200c\u200d"

_ID = re.compile(r"file-[A-Za-z0-9_-]{32}")


class UploadLimits(msgspec.Struct, frozen=True):
    """`timeout_s` is for one upload through us, `concurrency` for how many of these at once."""

    most_bytes: int
    ttl_s: int
    timeout_s: float
    concurrency: int


class Uploads:
    def __init__(self, blobs: Blobs, records: FileRecords, clock: Clock, limits: UploadLimits) -> None:
        self.limits = limits
        self._blobs = blobs
        self._records = records
        self._clock = clock
        self._receiving = 0

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Wraps one upload through us.

        Raises:
            TriptychError: rate_limited when there are too many, request_timeout when this one takes too long.
        """
        if self._receiving >= self.limits.concurrency:
            raise TriptychError(
                "rate_limited", "Too many uploads are under way; please try again.", retry_after_s=RETRY_AFTER_S
            )
        self._receiving += 1
        try:
            async with asyncio.timeout(self.limits.timeout_s) as deadline:
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            raise TriptychError(
                "request_timeout", f"The upload did not end within {self.limits.timeout_s:g} s."
            ) from None
        finally:
            self._receiving -= 1

    async def store(self, chunks: AsyncIterator[bytes]) -> BlobRef:
        """Raises TriptychError: a media_ code, with param "file"."""
        try:
            _, ref = await store(self._blobs, chunks, self.limits.most_bytes)
        except MediaFault as fault:
            raise fault.at("file") from fault
        return ref

    async def register(self, ref: BlobRef, filename: str, purpose: Purpose, owner: str, ttl_s: int) -> FileRecord:
        """Give an id to what has been stored."""
        record = self._record(filename, purpose, ref.size_bytes, owner, ttl_s)
        record = msgspec.structs.replace(record, blob=ref)
        await self._records.add(record)
        return record

    async def announce(self, request: UploadRequest, owner: str, ttl_s: int) -> tuple[FileRecord, UploadTarget]:
        """Give an id to what the client will put where the target says. Raises TriptychError: media_too_large."""
        if request.bytes > self.limits.most_bytes:
            raise TriptychError(
                "media_too_large", f"A file may have at most {self.limits.most_bytes} bytes.", param="bytes"
            )
        record = self._record(request.filename, request.purpose, request.bytes, owner, ttl_s)
        record = msgspec.structs.replace(record, upload_key=f"uploads/{record.id}")
        url = await self._blobs.presign_put(record.upload_key, UPLOAD_URL_S, record.size_bytes)
        await self._records.add(record)
        return record, UploadTarget(url, "PUT", int(record.created_at) + UPLOAD_URL_S)

    async def fill(self, file_id: str, chunks: AsyncIterator[bytes]) -> FileRecord:
        """Store the bytes of an announced file; once, unless they are the same again.

        Raises:
            MediaFault: file_not_found, media_unreadable when there are fewer than announced, media_too_large, or
                media_type_unsupported.
        """
        record = await self.get(file_id)
        _, ref = await store(self._blobs, chunks, record.size_bytes)
        if ref.size_bytes != record.size_bytes:
            raise MediaFault("media_unreadable", f"it has {ref.size_bytes} bytes, not {record.size_bytes} as announced")
        now = await self.get(file_id)  # another upload may have been faster, and be in use already
        if now.blob is not None and now.blob != ref:
            raise MediaFault("media_unreadable", "other bytes have been uploaded for this file already")
        record = msgspec.structs.replace(now, blob=ref)
        await self._records.update(record)
        return record

    async def get(self, file_id: str) -> FileRecord:
        """Raises MediaFault: file_not_found."""
        record = await self._records.get(file_id) if _ID.fullmatch(file_id) else None
        if record is None:
            raise MediaFault("file_not_found", "there is no file with this id")
        return record

    async def blob(self, file_id: str) -> BlobRef:
        """Where its bytes are; of a file that came straight to the store, they are looked at now.

        Raises:
            MediaFault: file_not_found, media_unreadable when they have not come or not as announced,
                media_type_unsupported.
        """
        record = await self.get(file_id)
        return record.blob or await self._settle(record)

    async def delete(self, file_id: str) -> None:
        """Raises MediaFault: file_not_found."""
        record = await self.get(file_id)
        await self._records.remove(record)
        if record.blob is None:
            await self._blobs.delete(record.upload_key)

    async def listing(self, owner: str, after: str, most: int) -> tuple[list[FileRecord], bool]:
        """Newest first, and whether there are more."""
        found = await self._records.listing(owner, after, most + 1)
        return found[:most], len(found) > most

    def content(self, ref: BlobRef) -> AsyncIterator[bytes]:
        return self._blobs.stream(ref.key)

    async def _settle(self, record: FileRecord) -> BlobRef:
        """Copied through us, not inside the store: what is hashed must be what is kept, and the client's URL still
        lets it change the original."""
        try:
            async with aclosing(self._blobs.stream(record.upload_key)) as chunks:
                _, ref = await store(self._blobs, chunks, record.size_bytes)
        except Missing:
            now = await self.get(record.id)  # another request may have been faster
            if now.blob is None:
                raise MediaFault("media_unreadable", "it has not been uploaded yet") from None
            return now.blob
        if ref.size_bytes != record.size_bytes:
            raise MediaFault("media_unreadable", f"it has {ref.size_bytes} bytes, not {record.size_bytes} as announced")
        await self._records.update(msgspec.structs.replace(record, blob=ref))
        await self._blobs.delete(record.upload_key)
        return ref

    def _record(self, filename: str, purpose: Purpose, size_bytes: int, owner: str, ttl_s: int) -> FileRecord:
        now = self._clock.now()
        return FileRecord(
            id=f"file-{secrets.token_urlsafe(24)}",
            owner=owner,
            filename=bare_name(filename),
            purpose=purpose,
            size_bytes=size_bytes,
            created_at=now,
            expires_at=now + ttl_s,
        )


def bare_name(given: str) -> str:
    """The last part of what may be a path on whatever system, without characters that are not seen."""
    parts = [part.strip() for part in re.split(r"[/\\]", given)]
    last = next((part for part in reversed(parts) if part), "")
    seen = "".join(one for one in last if one in _JOINERS or unicodedata.category(one) not in _UNSEEN).strip()
    return NAMELESS if seen in ("", ".", "..") else seen[-MOST_FILENAME_CHARS:]
