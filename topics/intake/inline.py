"""Media that comes inside the request: a `data:` URL, or bare base64. Its size is known before anything is decoded."""

import asyncio
import binascii
from urllib.parse import unquote_to_bytes

from topics.intake.faults import MediaFault, too_large

# More than this is decoded on a thread: the event loop would be held up for longer than a thread's start costs.
INLINE_CHARS = 256 << 10


def is_data_url(url: str) -> bool:
    return url[:5].lower() == "data:"


async def from_data_url(url: str, most_bytes: int) -> bytes:
    """The bytes in "data:[type][;parameters];base64,<data>".

    What it says of the type is not looked at.

    Raises:
        MediaFault: media_unreadable, media_too_large.
    """
    head, comma, data = url[len("data:") :].partition(",")
    if not comma:
        raise MediaFault("media_unreadable", "it is a data: URL without a comma")
    if not head.lower().endswith(";base64"):
        raise MediaFault("media_unreadable", "it is a data: URL that is not base64")
    return await from_base64(data, most_bytes)


async def from_base64(data: str, most_bytes: int) -> bytes:
    """Raises MediaFault: media_unreadable, media_too_large."""
    # Escapes are rare, and make a text shorter: a longest one of them is three times as long.
    longest = (most_bytes + 2) // 3 * 4
    if len(data) > (longest * 3 if "%" in data[:INLINE_CHARS] else longest):
        raise too_large(most_bytes)
    if len(data) > INLINE_CHARS:
        decoded = await asyncio.to_thread(_decoded, data)
    else:
        decoded = _decoded(data)
    if len(decoded) > most_bytes:
        raise too_large(most_bytes)
    return decoded


def _decoded(data: str) -> bytes:
    try:
        return binascii.a2b_base64(unquote_to_bytes(data) if "%" in data else data, strict_mode=True)
    except ValueError as error:  # also what a character outside of ASCII raises
        raise MediaFault("media_unreadable", "it is not valid base64") from error
