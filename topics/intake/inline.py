"""Media that comes inside the request: a `data:` URL, or bare base64. Its size is known before it is decoded."""

import asyncio
import binascii
import re

from topics.intake.faults import MediaFault, too_large

# More than this is decoded on a thread: the event loop would be held up for longer than a thread's start costs.
INLINE_CHARS = 256 << 10

# What `base64 FILE` and mail programs put into it: line ends, and what is left of them when lines are joined.
_SPACES = (b"\n", b"\r", b" ", b"\t", b"\f", b"\v")
# In a URL, all that base64 may need escaped.
_ESCAPES = tuple(
    (written, meant)
    for meant in (b"+", b"/", b"=", *_SPACES)
    for written in {b"%%%02X" % ord(meant), b"%%%02x" % ord(meant)}
)
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/=]")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


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
    _, mark, last = head.rpartition(";")
    if not mark or last.strip().lower() != "base64":
        raise MediaFault("media_unreadable", "it is a data: URL that is not base64")
    return await _from_base64(data, most_bytes, "what stands in its data: URL is not valid base64")


async def from_base64(data: str, most_bytes: int) -> bytes:
    """Line ends and spaces in it are skipped. Raises MediaFault: media_unreadable, media_too_large."""
    return await _from_base64(data, most_bytes, "it is neither base64 nor a URL that begins with https: or data:")


async def _from_base64(data: str, most_bytes: int, otherwise: str) -> bytes:
    """`otherwise`: what is said when it has characters that base64 has not."""
    longest = (most_bytes + 2) // 3 * 4
    if len(data) > 3 * longest:  # as if every character of it were escaped
        raise too_large(most_bytes)
    if len(data) > INLINE_CHARS:
        return await asyncio.to_thread(_decoded, data, most_bytes, otherwise)
    return _decoded(data, most_bytes, otherwise)


def _decoded(data: str, most_bytes: int, otherwise: str) -> bytes:
    if not data.isascii():
        raise MediaFault("media_unreadable", otherwise)
    raw = data.encode()
    if b"%" in raw:
        for written, meant in _ESCAPES:
            raw = raw.replace(written, meant)
    if any(space in raw for space in _SPACES):
        raw = raw.translate(None, b"".join(_SPACES))
    if len(raw) > (most_bytes + 2) // 3 * 4:
        raise too_large(most_bytes)
    try:
        decoded = binascii.a2b_base64(raw, strict_mode=True)
    except binascii.Error as error:
        raise MediaFault("media_unreadable", _why(raw) or otherwise) from error
    if len(decoded) > most_bytes:
        raise too_large(most_bytes)
    return decoded


def _why(raw: bytes) -> str:
    """What is wrong with it, when that is nothing but a slip."""
    if _CONTROL.search(raw):
        return "it has control characters in it, which base64 has not"
    return "" if _NOT_BASE64.search(raw) else "its base64 is cut off, or goes on behind its end"
