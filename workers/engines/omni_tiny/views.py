"""Training digits as rows, by what they look like."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from workers.engines.omni_tiny import augment, data
from workers.engines.omni_tiny.codes import Look
from workers.engines.omni_tiny.vision import DigitsVision

VARIANTS = 6


class Album:
    """Every training digit in several views, through the trained encoder."""

    def __init__(self, weights: Path, digits: data.Digits, chance: np.random.Generator, quick: bool) -> None:
        self._chance = chance
        variants = 1 if quick else VARIANTS
        images = [augment.variant(one, chance) for _ in range(variants) for one in digits.images]
        rows = DigitsVision.load(weights).encode_fitted(np.stack(images))
        self._by_look: dict[Look, list[torch.Tensor]] = defaultdict(list)
        for look, one in zip(digits.looks * variants, rows, strict=True):
            self._by_look[look].append(torch.from_numpy(one))

    def rows(self, look: Look) -> torch.Tensor:
        """Some training picture of that look."""
        choices = self._by_look[look]
        return choices[int(self._chance.integers(len(choices)))]
