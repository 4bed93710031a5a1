"""Pictures: bytes to upright sRGB on white, as a viewer shows them."""

import io
import struct
import warnings

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from schemas.manifest import MediaLimits
from workers.encoder import MediaFault, Picture
from workers.media import colour, png

# Pillow knows forty formats, some of which start interpreters or read other files; these only hold pixels.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000")
_ORIENTATION, _BITS_PER_SAMPLE, _PHOTOMETRIC = 0x0112, 258, 262  # tags
_WHITE_IS_ZERO = 0
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read(data: bytes, limits: MediaLimits) -> Picture:
    """An animation's first picture, a file's first page.

    Raises:
        MediaFault
    """
    facts = png.take_apart(data) if data.startswith(png.SIGNATURE) else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata, which no picture depends on
            return _read(facts.data if facts else _with_alpha_flag(data), facts, limits)
    except Image.DecompressionBombError as error:
        raise _too_many_pixels(limits) from error
    except MemoryError as error:
        raise MediaFault("media_too_large", "the picture needs too much memory to decode") from error
    except UnidentifiedImageError as error:
        raise _unidentified(data) from error
    except MediaFault:
        raise
    except Exception as error:  # on broken bytes Pillow's readers raise nearly every built-in error
        raise MediaFault("media_unreadable", "the picture is broken or cut off") from error


def _read(data: bytes, facts: png.Png | None, limits: MediaLimits) -> Picture:
    with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        _check_pixels(image.size, limits)
        image.load()
        return Picture(np.asarray(_as_shown(image, facts)))


def _check_pixels(size: tuple[int, int], limits: MediaLimits) -> None:
    if size[0] * size[1] > limits.image_pixels:
        raise _too_many_pixels(limits)


def _too_many_pixels(limits: MediaLimits) -> MediaFault:
    return MediaFault("media_too_large", f"the picture has more than {limits.image_pixels:,} pixels")


def _unidentified(data: bytes) -> MediaFault:
    if not data:
        return MediaFault("media_unreadable", "the picture is empty (0 bytes)")
    starts = (png.SIGNATURE, b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\0\x0cjP  ")
    if data.startswith(starts) or data[8:12] == b"WEBP" or data[4:12] in (b"ftypavif", b"ftypavis"):
        return MediaFault("media_unreadable", "the picture is broken, cut off or of a rare kind that is not supported")
    return MediaFault("media_type_unsupported", f"not a picture in one of the formats {', '.join(_FORMATS)}")


def _with_alpha_flag(data: bytes) -> bytes:
    """An animated WebP's canvas starts transparent, also if the header says that no frame has alpha."""
    is_animated = data[:4] == b"RIFF" and data[8:16] == b"WEBPVP8X" and len(data) > 20 and data[20] & 0x02
    return data[:20] + bytes([data[20] | 0x10]) + data[21:] if is_animated else data


def _as_shown(image: Image.Image, facts: png.Png | None) -> Image.Image:
    colours, alpha = _without_alpha(image, facts)
    shown = colour.from_png(colours, facts) if facts else colour.to_srgb(colours, image.info.get("icc_profile") or b"")
    turn = _TURNS.get(_orientation(image, facts))
    flat = colour.on_white(shown, alpha)
    return flat.transpose(turn) if turn is not None else flat


def _orientation(image: Image.Image, facts: png.Png | None) -> int:
    exif = image.getexif()
    try:
        if facts and facts.exif:
            exif.load(facts.exif)
        return int(exif.get(_ORIENTATION, 1))
    except (OSError, SyntaxError, ValueError, TypeError, struct.error):
        return 1  # broken metadata, sound picture


def _without_alpha(image: Image.Image, facts: png.Png | None) -> tuple[Image.Image, Image.Image | None]:
    """Its colours as mode L, RGB, CMYK or LAB, and how opaque each pixel is, unless all are."""
    if facts and facts.key and facts.colour_type != png.PALETTE:
        return _keyed(image, facts)
    if image.format == "GIF":
        return _on_screen(image)
    if image.mode in ("P", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode in ("RGBA", "LA", "RGBa", "La"):
        *bands, alpha = image.convert("RGBA" if image.mode.startswith("RGB") else "LA").split()
        return Image.merge("RGB" if len(bands) == 3 else "L", bands), alpha
    if image.mode.startswith("I;16"):
        return Image.fromarray(_of_16_bits(image)), None
    if image.mode in ("I", "F"):
        raise MediaFault(
            "media_type_unsupported", "pictures with 32 bits or signed numbers per sample have no one look"
        )
    if image.mode in ("L", "RGB", "CMYK", "LAB"):
        return image, None
    return image.convert("L" if image.mode == "1" else "RGB"), None


def _of_16_bits(image: Image.Image) -> NDArray[np.uint8]:
    tags = getattr(image, "tag_v2", {})
    (bits,) = tags.get(_BITS_PER_SAMPLE, (16,))
    top = (1 << bits) - 1
    samples = (np.asarray(image).astype(np.uint32) * 255 + top // 2) // top
    grey: NDArray[np.uint8] = np.minimum(samples, 255).astype(np.uint8)
    # Pillow turns the samples of white-is-zero TIFFs around up to 8 bits, and no further.
    return np.uint8(255) - grey if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey


def _on_screen(image: Image.Image) -> tuple[Image.Image, Image.Image]:
    """A GIF's first frame may cover a part of the screen; the rest shows what is behind it."""
    left, top, right, bottom = getattr(image, "dispose_extent", None) or (0, 0, *image.size)
    *bands, opaque = image.convert("RGBA").split()
    alpha = Image.new("L", image.size, 0)
    alpha.paste(opaque.crop((left, top, right, bottom)), (left, top))
    return Image.merge("RGB", bands), alpha


def _keyed(image: Image.Image, facts: png.Png) -> tuple[Image.Image, Image.Image | None]:
    """One value of grey or RGB is transparent: exactly that one, in all of its bits."""
    key = np.frombuffer(facts.key, ">u2").astype(np.uint32)
    bands = 3 if image.mode == "RGB" else 1
    if len(key) != bands:
        return _without_alpha(image, None)
    top = (1 << facts.depth) - 1
    if facts.depth == 16:
        samples = _deep_rgb(facts.data) if bands == 3 else np.atleast_3d(np.asarray(image))
    else:
        key, samples = key * 255 // top, np.atleast_3d(np.asarray(image.convert("RGB" if bands == 3 else "L")))
        top = 255
    opaque = (samples != key).any(axis=-1)
    colours = ((samples.astype(np.uint32) * 255 + top // 2) // top).astype(np.uint8)
    return Image.fromarray(colours if bands == 3 else colours[..., 0]), Image.fromarray((opaque * 255).astype(np.uint8))


def _deep_rgb(data: bytes) -> NDArray[np.uint16]:
    """Pillow keeps 8 of the 16 bits of RGB."""
    with av.open(io.BytesIO(data), "r", format="png_pipe") as container:
        frame = next(container.decode(video=0))
        return frame.to_ndarray(format="rgb48le").astype(np.uint16)
