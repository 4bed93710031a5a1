"""What decoders have made, on its way to clients: its bytes, or a URL that opens it for a while.

The URL is the store's own where clients can reach that (TRIPTYCH_S3_PUBLIC_ENDPOINT), else one of ours.
"""

import asyncio
import base64

import msgspec

from gateway.links import Links
from infra.faults import Corrupt, Missing, Unavailable
from infra.ports import Blobs
from schemas.errors import TriptychError
from schemas.events import Event, Made, Part
from schemas.refs import BlobRef

URL_EXPIRES_S = 3_600
# A minute of 24 kHz speech is 3 MiB. Together these bound what one gateway holds of media at a time.
MOST_BYTES = 64 << 20
AT_ONCE = 16


class Piece(msgspec.Struct, frozen=True):
    """A picture, or a stretch of sound, of one part of an answer: as bytes or as a URL."""

    part: Part
    made: Made
    data: bytes = b""
    url: str = ""


# What is told of an answer whose parts are followed, too.
Told = Event | Piece


class Delivery:
    """Over the object store; one per gateway. `links` are None where clients can reach the store."""

    def __init__(self, blobs: Blobs, links: Links | None) -> None:
        self._blobs = blobs
        self._links = links
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def data(self, ref: BlobRef) -> bytes:
        """Raises TriptychError: internal or overloaded, when the store does not give it."""
        if ref.size_bytes > MOST_BYTES:
            raise TriptychError("internal", f"A part of the answer has more than {MOST_BYTES >> 20} MiB.")
        try:
            async with self._turns:
                return await self._blobs.get(ref)
        except (Missing, Corrupt) as error:
            raise TriptychError("internal", "A part of the answer is not to be found any more.") from error
        except Unavailable as error:
            raise TriptychError("overloaded", "The object store does not answer.", retry_after_s=1) from error

    async def url(self, ref: BlobRef, origin: str) -> str:
        """Opens it for URL_EXPIRES_S, without credentials. `origin`: where the client has reached us."""
        if self._links is not None:
            return self._links.output(ref, URL_EXPIRES_S, origin)
        return await self._blobs.presign_get(ref.key, URL_EXPIRES_S)


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
