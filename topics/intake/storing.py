"""A stream of media -> an object under its digest, with its type found and its size bounded on the way."""

from collections.abc import AsyncIterator

from infra.ports import Blobs
from schemas.media import MediaKind
from schemas.refs import BlobRef
from topics.intake.faults import too_large
from topics.intake.sniff import HEAD_BYTES, MediaType, check_kind, sniff

FOLDER = "media"
SLICE_BYTES = 1 << 20


async def store(
    blobs: Blobs, chunks: AsyncIterator[bytes], most_bytes: int, expected: MediaKind | None = None
) -> tuple[MediaType, BlobRef]:
    """Nothing is stored of what is refused.

    Raises:
        MediaFault: media_unreadable when empty, media_type_unsupported, media_too_large; or what `chunks` raises.
        Unavailable: the object store does not answer.
    """
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            break
    found = sniff(head)
    check_kind(found, expected)
    return found, await blobs.put_stream(FOLDER, _bounded(_again(head, chunks), most_bytes), found.name)


async def slices(data: bytes) -> AsyncIterator[bytes]:
    """Bytes that are in memory already, as a stream."""
    for begin in range(0, len(data), SLICE_BYTES):
        yield data[begin : begin + SLICE_BYTES]


async def _bounded(chunks: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    size_bytes = 0
    async for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > most_bytes:
            raise too_large(most_bytes)
        yield chunk


async def _again(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The whole stream, of which the head has been read already."""
    yield head
    async for chunk in rest:
        yield chunk
