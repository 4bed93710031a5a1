"""SHA-256 off the event loop: 64 MiB take tens of milliseconds, during which nobody else would be served."""

import asyncio
import hashlib

from infra.faults import Corrupt
from schemas.refs import BlobRef, payload_ref

# A thread's start costs more than hashing this much.
INLINE_BYTES = 128 << 10


async def sha256_of(data: bytes | memoryview) -> str:
    """Lower-case hex."""
    if len(data) <= INLINE_BYTES:
        return hashlib.sha256(data).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()


async def content_ref(data: bytes, media_type: str, folder: str) -> BlobRef:
    """As payload_ref: `<folder>/<sha256>`."""
    if len(data) <= INLINE_BYTES:
        return payload_ref(data, media_type, folder)
    return await asyncio.to_thread(payload_ref, data, media_type, folder)


def fits(ref: BlobRef, data: bytes) -> None:
    """Before writing: whoever made the reference has just hashed these bytes, so only their number is looked at.

    Raises:
        ValueError: a bug of the writer.
    """
    if len(data) != ref.size_bytes:
        raise ValueError(f"{ref.key}: {len(data)} bytes that do not match the reference ({ref.size_bytes} bytes)")


async def checked(ref: BlobRef, data: bytes) -> bytes:
    """Raises Corrupt when these are not the bytes that the reference names."""
    if len(data) != ref.size_bytes or await sha256_of(data) != ref.digest:
        raise Corrupt(f"{ref.key}: {len(data)} bytes that do not match the reference ({ref.size_bytes} bytes)")
    return data
