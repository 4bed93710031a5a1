"""The digits inside scikit-learn: the fixed split, what each looks like, and from a picture to 8 x 8 and back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from workers.engines.omni_tiny.codes import SLANTS, WEIGHTS, Look

SIDE = 8  # pixels; the data set's own size
TEST_PART = 0.2
SPLIT_SEED = 20240229  # never changed: figures are only comparable on the same held-out digits
MIN_CONTRAST = 12.0  # of 255; less is an empty sheet
INK = 0.25  # of full contrast; where a digit begins
PAPER_NOISE = 0.06  # of full contrast; compression and scanner noise below it is paper

Floats = NDArray[np.float32]
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Digits:
    """Pictures [n, 8, 8], 0 paper to 1 ink, and what each one shows."""

    images: Floats
    looks: list[Look]

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array([one.digit for one in self.looks])


def split() -> tuple[Digits, Digits]:
    """The training digits and the held-out ones (a fifth of each class). The same for ever."""
    found = load_digits()
    images = (found.images / 16).astype(np.float32)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    held_out = np.zeros(len(images), bool)
    for digit in range(10):
        members = order[found.target[order] == digit]
        held_out[members[: round(len(members) * TEST_PART)]] = True
    looks = _looks(images, found.target, ~held_out)
    return _subset(images, looks, ~held_out), _subset(images, looks, held_out)


def ink(images: Floats) -> Floats:
    """Total ink of each 8 x 8 picture: what `weight` is a third of, within its class."""
    return np.asarray(images.sum(axis=(1, 2)))


def lean(images: Floats) -> Floats:
    """How far each picture leans to the right, in pixels sideways for each pixel upwards."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    mass = ink(images) + 1e-6
    mean_x, mean_y = ((images * axis).sum(axis=(1, 2)) / mass for axis in (x, y))
    dx, dy = x[None] - mean_x[:, None, None], y[None] - mean_y[:, None, None]
    return np.asarray(-(images * dx * dy).sum(axis=(1, 2)) / ((images * dy * dy).sum(axis=(1, 2)) + 1e-6))


def to_8x8(picture: Picture) -> Floats:
    """Any RGB picture [h, w, 3] as a light digit on dark, cut out and fitted to 8 x 8, 0 to 1.

    The paper is what the border mostly shows, ink is whatever differs from it: dark on light, light on dark and
    colours come out alike. An empty sheet gives zeros.
    """
    pixels = picture.astype(np.float32)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    contrast = np.abs(pixels - np.median(border, axis=0)).max(axis=2)
    full = float(contrast.max())
    if full < MIN_CONTRAST:
        return np.zeros((SIDE, SIDE), np.float32)
    shape = np.clip((contrast / full - PAPER_NOISE) / (1 - PAPER_NOISE), 0, 1)
    return _fit(_cut_out(shape))


def to_picture(image: Floats, width: int, height: int) -> Picture:
    """An 8 x 8 image, 0 to 1, as white on black RGB of that size in pixels, smoothly enlarged and never stretched."""
    side = min(width, height)
    ramps = _ramps(side)
    top, left = (height - side) // 2, (width - side) // 2
    sheet = np.zeros((height, width, 3), np.uint8)
    grown = ramps @ np.clip(image, 0, 1) @ ramps.T
    sheet[top : top + side, left : left + side] = (grown * 255).round().astype(np.uint8)[:, :, None]
    return sheet


def _looks(images: Floats, digits: NDArray[np.int64], training: NDArray[np.bool_]) -> list[Look]:
    """Thirds are taken within a class, of training digits: an ordinary 1 has less ink than an ordinary 8."""
    weight, slant = np.zeros(len(images), int), np.zeros(len(images), int)
    for measure, out, count in ((ink(images), weight, len(WEIGHTS)), (lean(images), slant, len(SLANTS))):
        for digit in range(10):
            members = digits == digit
            edges = np.quantile(measure[members & training], [part / count for part in range(1, count)])
            out[members] = np.searchsorted(edges, measure[members])
    return [Look(int(d), int(w), int(s)) for d, w, s in zip(digits, weight, slant, strict=True)]


def _subset(images: Floats, looks: list[Look], chosen: NDArray[np.bool_]) -> Digits:
    return Digits(images[chosen], [one for one, keep in zip(looks, chosen, strict=True) if keep])


def _cut_out(shape: Floats) -> Floats:
    """The square around the ink; sideways it is filled up with paper, as the data set does."""
    rows, columns = (np.flatnonzero((shape > INK).any(axis=axis)) for axis in (1, 0))
    cut = shape[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    side = max(cut.shape)
    top, left = (side - cut.shape[0]) // 2, (side - cut.shape[1]) // 2
    square = np.zeros((side, side), np.float32)
    square[top : top + cut.shape[0], left : left + cut.shape[1]] = cut
    return square


def _fit(square: Floats) -> Floats:
    shares = _shares(len(square))
    small = shares @ square @ shares.T
    return np.asarray(small / max(float(small.max()), 1e-6), dtype=np.float32)


def _shares(pixels: int) -> Floats:
    """[8, pixels]: how much of each source pixel falls into each of the 8 cells; every row sums to 1."""
    edges = np.linspace(0, pixels, SIDE + 1)
    left, right = np.arange(pixels), np.arange(1, pixels + 1)
    overlap = np.minimum(edges[1:, None], right) - np.maximum(edges[:-1, None], left)
    return np.asarray(np.clip(overlap, 0, None) * SIDE / pixels, dtype=np.float32)


def _ramps(pixels: int) -> Floats:
    """[pixels, 8]: linear interpolation between the centres of the 8 cells."""
    place = np.clip((np.arange(pixels) + 0.5) * SIDE / pixels - 0.5, 0, SIDE - 1)
    return np.clip(1 - np.abs(place[:, None] - np.arange(SIDE)), 0, None).astype(np.float32)
