"""Colours as a screen shows them: any colour space to sRGB, transparency onto white."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from workers.media.png import Png

_MODES_OF_SPACES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}  # an ICC profile's space -> what it can be applied to
_INVERTED_GAMMA = 1 / 2.2
_SRGB_CHROMATICITIES = (0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
_SAME = 0.01  # two gammas or chromaticities closer than this are one: writers round them
_ROWS = 256  # worked on at once, so that a picture's floats need little memory


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """`image` (mode L, RGB, CMYK or LAB) as sRGB. A profile that is broken or of another space counts as none."""
    if profile and image.mode != "LAB":
        image = _through_profile(image, profile)
    return image if image.mode == "RGB" else image.convert("RGB")


def _through_profile(image: Image.Image, profile: bytes) -> Image.Image:
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = _MODES_OF_SPACES.get(source.profile.xcolor_space.strip(), "")
        if mode == "RGB" and image.mode == "L":
            image = image.convert("RGB")  # grey pictures often carry the RGB profile they were worked on in
        if mode != image.mode:
            return image
        converted = ImageCms.profileToProfile(
            image,
            source,
            ImageCms.createProfile("sRGB"),
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            outputMode="RGB",
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    except (ImageCms.PyCMSError, OSError, ValueError):
        return image
    return converted or image


def from_png(image: Image.Image, png: Png) -> Image.Image:
    """`image` (mode L or RGB) as sRGB, by what its PNG says: a profile, or "is sRGB", or a gamma and chromaticities."""
    if png.profile:
        return to_srgb(image, png.profile)
    image = image.convert("RGB")
    gamma = png.gamma if 0.05 < png.gamma < 5 else _INVERTED_GAMMA
    if png.is_srgb or (_near((gamma,), (_INVERTED_GAMMA,)) and _near(png.chromaticities, _SRGB_CHROMATICITIES)):
        return image
    try:
        return _calibrated(image, gamma, _matrix(png.chromaticities))
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return image  # no such primaries


def _near(values: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Of nothing: true."""
    return all(abs(a - b) < _SAME for a, b in zip(values, others, strict=False))


def _calibrated(image: Image.Image, gamma: float, matrix: NDArray[np.float32]) -> Image.Image:
    samples = np.arange(256) / 255
    is_srgb_curve = _near((gamma,), (_INVERTED_GAMMA,))
    light = (_srgb_light(samples) if is_srgb_curve else samples ** (1 / gamma)).astype(np.float32)
    levels = np.round(_srgb_samples(np.arange(4096) / 4095) * 255).astype(np.uint8)
    rgb = np.array(image)
    for top in range(0, len(rgb), _ROWS):
        linear = np.clip(light[rgb[top : top + _ROWS]] @ matrix.T, 0, 1)
        rgb[top : top + _ROWS] = levels[np.round(linear * 4095).astype(np.uint16)]
    return Image.fromarray(rgb)


def _srgb_light(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(samples <= 0.04045, samples / 12.92, ((samples + 0.055) / 1.055) ** 2.4)


def _srgb_samples(light: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


def _matrix(chromaticities: tuple[float, ...]) -> NDArray[np.float32]:
    """Linear RGB of these primaries -> linear sRGB, white to white (Bradford's adaptation)."""
    source = _to_xyz(chromaticities or _SRGB_CHROMATICITIES)
    target = _to_xyz(_SRGB_CHROMATICITIES)
    bradford = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
    cones = (bradford @ target.sum(axis=1)) / (bradford @ source.sum(axis=1))
    adapted = np.linalg.inv(bradford) @ np.diag(cones) @ bradford
    matrix: NDArray[np.float32] = (np.linalg.inv(target) @ adapted @ source).astype(np.float32)
    return matrix


def _to_xyz(chromaticities: tuple[float, ...]) -> NDArray[np.float64]:
    """Columns: the XYZ of full red, green and blue, which add up to white with Y = 1."""
    white_x, white_y = chromaticities[:2]
    columns = np.array([(x, y, 1 - x - y) for x, y in np.reshape(chromaticities[2:], (3, 2))]).T
    white = np.array([white_x / white_y, 1, (1 - white_x - white_y) / white_y])
    scaled: NDArray[np.float64] = columns * np.linalg.solve(columns, white)
    return scaled


def on_white(image: Image.Image, alpha: Image.Image | None) -> Image.Image:
    if alpha is None:
        return image
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=alpha)
    return white
