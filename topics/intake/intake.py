"""The media of one request, from wherever each item is, into the object store."""

import asyncio
from collections.abc import Sequence

import msgspec

from infra.ports import Blobs
from schemas.errors import TriptychError
from schemas.manifest import MediaLimits
from schemas.media import MediaKind
from schemas.refs import BlobRef
from topics.intake.faults import MediaFault, too_large
from topics.intake.fetch import Fetcher
from topics.intake.inline import from_base64, from_data_url, is_data_url
from topics.intake.sniff import MediaType, check_kind
from topics.intake.storing import slices, store
from topics.intake.uploads import Uploads


class Link(msgspec.Struct, frozen=True):
    """http(s): or data:"""

    url: str


class Inline(msgspec.Struct, frozen=True):
    """Bare base64."""

    data: str


class Uploaded(msgspec.Struct, frozen=True):
    """What `POST /v1/files` has given an id."""

    file_id: str


Source = Link | Inline | Uploaded


class Item(msgspec.Struct, frozen=True):
    """One media item of a request. `kind` None: whatever its bytes are."""

    kind: MediaKind | None
    source: Source
    param: str  # where the client put it: "messages[0].content[1].image_url"


class Taken(msgspec.Struct, frozen=True):
    """The item in the store. `kind` is what it is used as: of a video given as sound, the sound."""

    kind: MediaKind
    blob: BlobRef  # its media_type is what the bytes say
    param: str


# Of a scheme and its colon. Base64 has no colon.
MOST_SCHEME_CHARS = 64


def source_of(text: str) -> Link | Inline:
    """Of a field that may hold a URL or base64. Line ends and spaces around it are no part of it."""
    text = text.strip()
    return Link(text) if ":" in text[:MOST_SCHEME_CHARS] else Inline(text)


class Intake:
    """Takes media in; knows no HTTP framework and no API."""

    def __init__(self, blobs: Blobs, fetcher: Fetcher, uploads: Uploads) -> None:
        self.uploads = uploads
        self._blobs = blobs
        self._fetcher = fetcher

    def close(self) -> None:
        self._fetcher.close()

    async def take(self, items: Sequence[Item], limits: MediaLimits) -> list[Taken]:
        """All items at once, in the order given; the first that fails stops the others.

        Raises:
            TriptychError: a media_ code, file_not_found or overloaded; its param and message name the item.
            Unavailable: the object store or Redis does not answer.
        """
        if len(items) > limits.items:
            raise TriptychError(
                "media_too_many",
                f"The request has {len(items)} media items, and this model takes at most {limits.items}.",
                param=items[limits.items].param,
            )
        try:
            async with asyncio.TaskGroup() as group:
                taking = [group.create_task(self._named(item, limits.item_bytes)) for item in items]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in taking]

    async def _named(self, item: Item, most_bytes: int) -> Taken:
        try:
            found, blob = await self._take(item, most_bytes)
        except MediaFault as fault:
            raise fault.at(item.param) from fault
        return Taken(item.kind or found.kind, blob, item.param)

    async def _take(self, item: Item, most_bytes: int) -> tuple[MediaType, BlobRef]:
        match item.source:
            case Link(url) if is_data_url(url):
                return await self._inline(await from_data_url(url, most_bytes), item.kind, most_bytes)
            case Link(url):
                async with self._fetcher.opened(url, most_bytes) as body:
                    return await store(self._blobs, body, most_bytes, item.kind)
            case Inline(data):
                return await self._inline(await from_base64(data, most_bytes), item.kind, most_bytes)
            case Uploaded(file_id):
                return await self._uploaded(file_id, item.kind, most_bytes)

    async def _inline(self, data: bytes, kind: MediaKind | None, most_bytes: int) -> tuple[MediaType, BlobRef]:
        return await store(self._blobs, slices(data), most_bytes, kind)

    async def _uploaded(self, file_id: str, kind: MediaKind | None, most_bytes: int) -> tuple[MediaType, BlobRef]:
        blob = await self.uploads.blob(file_id)
        found = MediaType(blob.media_type)
        check_kind(found, kind)
        if blob.size_bytes > most_bytes:
            raise too_large(most_bytes)
        return found, blob
