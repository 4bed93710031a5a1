"""Pictures built by hand, bit by bit, so that no library's reading of a format can hide its writing of it."""

import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Rgb = NDArray[np.uint8]


def scene(width: int = 48, height: int = 32) -> Rgb:
    """Smooth colours, and four corners no two of which are alike."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([x * 255 // (width - 1), y * 255 // (height - 1), (x + y) * 255 // (width + height - 2)], axis=-1)
    rgb[: height // 4, : width // 4] = (250, 20, 20)
    return rgb.astype(np.uint8)


def saved(image: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def png(
    rows: NDArray[np.integer],
    depth: int,
    colour_type: int,
    *,
    before: Sequence[tuple[bytes, bytes]] = (),
    size: tuple[int, int] | None = None,
) -> bytes:
    """`rows`: samples [height, width(, bands)] of `depth` bits; `before`: chunks between header and pixels."""
    height, width = rows.shape[:2]
    flat = rows.reshape(height, -1)
    if depth == 16:
        packed = flat.astype(">u2").view(np.uint8)
    elif depth == 8:
        packed = flat.astype(np.uint8)
    else:
        bits = (flat[..., None] >> np.arange(depth - 1, -1, -1)) & 1
        packed = np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), packed.reshape(height, -1)], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", *(size or (width, height)), depth, colour_type, 0, 0, 0)
    chunks = [(b"IHDR", header), *before, (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def tiff(order: str, tags: dict[int, tuple[int, list[int]]], strip: bytes) -> bytes:
    """One page. `tags`: number -> (type: 3 = 16 bits, 4 = 32 bits, and the values)."""
    tags = {**tags, 273: (4, [0]), 279: (4, [len(strip)])}
    size = 8 + 2 + 12 * len(tags) + 4
    entries, extra = b"", b""
    for number, (kind, values) in sorted(tags.items()):
        values = [0] if number == 273 else values
        body = struct.pack(order + ("H" if kind == 3 else "I") * len(values), *values)
        if len(body) > 4:
            extra, body = extra + body, struct.pack(order + "I", size + len(extra))
        entries += struct.pack(order + "HHI", number, kind, len(values)) + body.ljust(4, b"\0")
    at = entries.index(struct.pack(order + "HHI", 273, 4, 1)) + 8
    entries = entries[:at] + struct.pack(order + "I", size + len(extra)) + entries[at + 4 :]
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "IH", 8, len(tags)) + entries + b"\0" * 4 + extra + strip


def plain_tiff(order: str, rows: NDArray[np.integer], bits: list[int], photometric: int, **more: list[int]) -> bytes:
    height, width = rows.shape[:2]
    strip = rows.astype((order + "u2") if bits[0] == 16 else np.uint8).tobytes()
    tags = {256: (3, [width]), 257: (3, [height]), 258: (3, bits), 259: (3, [1]), 262: (3, [photometric])}
    tags |= {277: (3, [len(bits)]), 278: (3, [height])} | {int(tag[1:]): (3, values) for tag, values in more.items()}
    return tiff(order, tags, strip)


def icc(space: bytes, gamma: float, primaries: Sequence[tuple[float, float, float]] = ()) -> bytes:
    """A version 2 display profile: grey, or RGB with these D50 colorants (XYZ of red, green and blue)."""
    curve = b"curv" + struct.pack(">IIHH", 0, 1, round(gamma * 256), 0)
    white = _xyz(0.9642, 1.0, 0.8249)
    tags = [(b"wtpt", white)]
    if space == b"GRAY":
        tags.append((b"kTRC", curve))
    else:
        for name, colorant in zip((b"r", b"g", b"b"), primaries, strict=True):
            tags += [(name + b"XYZ", _xyz(*colorant)), (name + b"TRC", curve)]
    at = 128 + 4 + 12 * len(tags)
    table, bodies = struct.pack(">I", len(tags)), b""
    for name, body in tags:
        table += name + struct.pack(">II", at + len(bodies), len(body))
        bodies += body
    size = at + len(bodies)
    head = struct.pack(">I4sI4s4s4s12s4s", size, b"none", 0x02400000, b"mntr", space, b"XYZ ", b"\0" * 12, b"acsp")
    head = head.ljust(68, b"\0") + struct.pack(">III", 0xF6D6, 0x10000, 0xD32D)
    return head.ljust(128, b"\0") + table + bodies


def _xyz(x: float, y: float, z: float) -> bytes:
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(value * 65536) for value in (x, y, z)))


# XYZ (D50) of the primaries, as published with Display P3 and Adobe RGB (1998).
DISPLAY_P3 = ((0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407))
ADOBE_RGB = ((0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457))
SRGB_D50 = ((0.43607, 0.22249, 0.01392), (0.38515, 0.71687, 0.09708), (0.14307, 0.06061, 0.71410))


def as_srgb(rgb: NDArray[np.integer], gamma: float, primaries: Sequence[tuple[float, float, float]]) -> Rgb:
    """By the formula: what `rgb` of a colour space with these D50 primaries looks like in sRGB."""
    light = (rgb / 255.0) ** gamma @ np.array(primaries) @ np.linalg.inv(np.array(SRGB_D50))
    light = light.clip(0, 1)
    return np.round(np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055) * 255).astype(
        np.uint8
    )


def gif(width: int, height: int, frame: tuple[int, int, int, int], indices: Sequence[int], key: int | None) -> bytes:
    """Four colours: black, red, green, blue. `frame`: left, top, width, height on the screen."""
    palette = bytes([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    control = b"" if key is None else b"!\xf9\x04" + bytes([1, 0, 0, key]) + b"\0"
    codes = [4, *(code for index in indices for code in (index, 4))]  # the clear codes keep all codes 3 bits wide
    codes[-1] = 5  # the end
    number = sum(code << (3 * place) for place, code in enumerate(codes))
    body = number.to_bytes((3 * len(codes) + 7) // 8, "little")
    blocks = b"".join(bytes([len(part)]) + part for part in (body[at : at + 255] for at in range(0, len(body), 255)))
    screen = struct.pack("<HHBBB", width, height, 0x81, 0, 0)
    return b"GIF89a" + screen + palette + control + b"," + struct.pack("<HHHHB", *frame, 0) + b"\x02" + blocks + b"\0;"
