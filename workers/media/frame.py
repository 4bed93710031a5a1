"""A frame of a video as a player shows it: upright, in its true proportions and colours, on white."""

from collections.abc import Mapping
from fractions import Fraction
from typing import cast

import numpy as np
from av.buffer import Buffer
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from numpy.typing import NDArray
from PIL import Image

from workers.encoder import Picture
from workers.media import colour

# Larger frames are scaled down: dozens of them are held at once, and no encoder looks at more.
PIXELS = 1920 * 1088
_STRETCH = Fraction(4)  # pixels longer than this are a mistake of the header
_HD_LINES = 720  # without a word on it, players take BT.601 for less, BT.709 from here on
_MATRICES = {
    1: Colorspace.ITU709,
    4: Colorspace.FCC,
    5: Colorspace.ITU601,
    6: Colorspace.ITU601,
    7: Colorspace.SMPTE240M,
    9: Colorspace.BT2020,
    10: Colorspace.BT2020,
}  # by H.273's matrix coefficients
_EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
_FULL_RANGE_NAMES = "yuvj"


def picture(frame: VideoFrame, pixel_aspect: Fraction | None) -> Picture:
    """`pixel_aspect`: width of a pixel by its height; None = square."""
    width, height = _shown_size(frame.width, frame.height, pixel_aspect)
    has_alpha = any(component.is_alpha for component in frame.format.components)
    samples = frame.reformat(
        width,
        height,
        "rgba" if has_alpha else "rgb24",
        src_colorspace=_matrix(frame),
        src_color_range=_range(frame),
        dst_color_range=ColorRange.JPEG,
        interpolation=_EXACT,
        threads=1,
    ).to_ndarray()
    rgb = samples.astype(np.uint8, copy=False)
    if has_alpha:
        rgb = np.asarray(colour.on_white(Image.fromarray(rgb[..., :3]), Image.fromarray(rgb[..., 3])))
    return Picture(np.ascontiguousarray(_upright(rgb, frame)))


def _shown_size(width: int, height: int, pixel_aspect: Fraction | None) -> tuple[int, int]:
    aspect = pixel_aspect if pixel_aspect and 1 / _STRETCH <= pixel_aspect <= _STRETCH else Fraction(1)
    shown_width, shown_height = (width * aspect, height) if aspect > 1 else (width, height / aspect)
    shrink = min(1.0, (PIXELS / float(shown_width * shown_height)) ** 0.5)
    return max(1, round(shown_width * shrink)), max(1, round(shown_height * shrink))


def _matrix(frame: VideoFrame) -> Colorspace:
    return _MATRICES.get(frame.colorspace) or (Colorspace.ITU709 if frame.height >= _HD_LINES else Colorspace.ITU601)


def _range(frame: VideoFrame) -> ColorRange:
    is_rgb = frame.format.is_rgb
    if frame.color_range == ColorRange.JPEG or frame.format.name.startswith(_FULL_RANGE_NAMES) or is_rgb:
        return ColorRange.JPEG
    return ColorRange.MPEG


def _upright(rgb: NDArray[np.uint8], frame: VideoFrame) -> NDArray[np.uint8]:
    """Turned and mirrored as the display matrix says, to the nearest quarter."""
    matrix = cast("Mapping[str, Buffer]", frame.side_data).get("DISPLAYMATRIX")  # PyAV calls it a TypedDict
    if matrix is None or matrix.buffer_size != 9 * 4:
        return rgb
    # A pixel at (x, y) is shown at (a * x + c * y, b * x + d * y).
    a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].astype(np.int64)
    if abs(b) + abs(c) > abs(a) + abs(d):
        rgb, a, d = rgb.transpose(1, 0, 2), c, b
    rgb = rgb[:, ::-1] if a < 0 else rgb
    return rgb[::-1] if d < 0 else rgb
