"""What a PNG says beside its pixels, taken apart before the decoder sees it.

Text, time and animation chunks are dropped unread: none changes the still picture, and compressed text is the
cheapest bomb there is. What does change the picture (transparency, colour, orientation) is read here, because Pillow
applies it to samples it has already scaled, or not at all.
"""

import struct
import zlib
from collections.abc import Iterator

import msgspec

from workers.encoder import MediaFault

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PALETTE = 3  # colour type
_PROFILE_BYTES = 4 << 20  # the largest ICC profiles in use, of printing presses, have about 3 MB


class Png(msgspec.Struct):
    """A PNG without its ancillary chunks, and what those said."""

    data: bytes
    depth: int  # bits per sample
    colour_type: int
    key: bytes = b""  # tRNS of grey and RGB: this one value is transparent; samples of 16 bits
    profile: bytes = b""  # ICC
    exif: bytes = b""
    is_srgb: bool = False
    gamma: float = 0.0  # of the samples, about 1/2.2; 0 = not said
    chromaticities: tuple[float, ...] = ()  # x, y of white, red, green, blue


def take_apart(data: bytes) -> Png:
    """
    Raises:
        MediaFault: the header is not one of a PNG.
    """
    if data[12:16] != b"IHDR" or len(data) < 33:
        raise MediaFault("media_unreadable", "the picture is broken or cut off")
    png = Png(b"", depth=data[24], colour_type=data[25])
    kept = [memoryview(SIGNATURE)]
    for kind, chunk in _chunks(data):
        if kind in (b"IHDR", b"PLTE", b"IDAT", b"IEND") or (kind == b"tRNS" and png.colour_type == PALETTE):
            kept.append(chunk)
        else:
            _note(png, kind, chunk[8:-4])
    png.data = b"".join(kept)
    return png


def _note(png: Png, kind: bytes, body: memoryview) -> None:
    if kind == b"tRNS":
        png.key = bytes(body)
    elif kind == b"iCCP":
        png.profile = _inflated_profile(bytes(body))
    elif kind == b"eXIf":
        png.exif = bytes(body)
    elif kind == b"sRGB":
        png.is_srgb = True
    elif kind == b"gAMA" and len(body) == 4:
        png.gamma = int.from_bytes(body, "big") / 100_000
    elif kind == b"cHRM" and len(body) == 32:
        png.chromaticities = tuple(value / 100_000 for value in struct.unpack(">8I", body))


def _inflated_profile(body: bytes) -> bytes:
    """A profile that is broken or too large counts as none, as in browsers: the picture is still one."""
    _, _, compressed = body.partition(b"\0")
    inflater = zlib.decompressobj()
    try:
        profile = inflater.decompress(compressed[1:], _PROFILE_BYTES)
    except zlib.error:
        return b""
    return profile if inflater.eof else b""


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Each whole chunk, with its length and checksum; the last one as far as it goes."""
    view, at = memoryview(data), len(SIGNATURE)
    while at + 8 <= len(data):
        end = at + 12 + int.from_bytes(view[at : at + 4], "big")
        yield data[at + 4 : at + 8], view[at:end]
        at = end
