"""Training pictures as people send them: enlarged, turned, framed, coloured, noisy; then cut out like any other."""

import numpy as np
import torch
from torch.nn import functional as fn

from workers.engines.omni_tiny import data

MODES = ("nearest", "bilinear", "bicubic")
MAX_TURN = 0.16  # radians
MAX_STRETCH = 0.12


def variant(image: data.Floats, chance: np.random.Generator) -> data.Floats:
    """One more 8 x 8 view of an 8 x 8 image: through a picture of random size, angle, margins, colours and noise."""
    side = int(chance.integers(8, 97))
    # Small pictures are told apart by single pixels: those are not turned.
    sheet = _enlarge(image, side, chance) if side < 24 else _turn(_enlarge(image, side, chance), chance)
    margins = chance.integers(0, side // 2 + 1, size=(2, 2)) if chance.random() < 0.6 else np.zeros((2, 2), int)
    sheet = np.pad(sheet, margins)
    paper, pen = chance.uniform(0, 255, 3), chance.uniform(0, 255, 3)
    if np.abs(paper - pen).max() < 80 or chance.random() < 0.5:
        paper, pen = (np.zeros(3), np.full(3, 255.0))[:: 1 if chance.random() < 0.5 else -1]
    coloured = paper + sheet[:, :, None] * (pen - paper)
    noise = chance.normal(0, chance.uniform(0, 4), coloured.shape)
    return data.to_8x8((coloured + noise).clip(0, 255).round().astype(np.uint8))


def _enlarge(image: data.Floats, side: int, chance: np.random.Generator) -> data.Floats:
    mode = MODES[int(chance.integers(len(MODES)))]
    smooth = {} if mode == "nearest" else {"align_corners": False}
    grown = fn.interpolate(torch.from_numpy(image)[None, None], size=(side, side), mode=mode, **smooth)
    return np.asarray(grown[0, 0].clamp(0, 1))


def _turn(sheet: data.Floats, chance: np.random.Generator) -> data.Floats:
    angle = chance.uniform(-MAX_TURN, MAX_TURN)
    stretch = 1 + chance.uniform(-MAX_STRETCH, MAX_STRETCH, 2)
    # Grow the view a little, so that turning cuts nothing off.
    matrix = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]]) * 1.15
    matrix[:, :2] *= stretch
    grid = fn.affine_grid(torch.tensor(matrix, dtype=torch.float32)[None], [1, 1, *sheet.shape], align_corners=False)
    return np.asarray(fn.grid_sample(torch.from_numpy(sheet)[None, None], grid, align_corners=False)[0, 0])
