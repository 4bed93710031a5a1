"""The vision encoder: a picture becomes a few continuous rows that go into the language model in place of tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as fn

from workers.engines.omni_tiny import data

WEIGHTS_FILE = "vision.safetensors"
ROWS = 4  # per picture
WIDTH = 576  # of the language model's embeddings
INNER, HEADS, BLOCKS = 64, 4, 2
PATCH = 2  # pixels
PATCHES = (data.SIDE // PATCH) ** 2


class Block(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """One pre-norm transformer block; every place sees every other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(INNER), nn.LayerNorm(INNER)
        self.qkv, self.out = nn.Linear(INNER, 3 * INNER), nn.Linear(INNER, INNER)
        self.up, self.down = nn.Linear(INNER, 2 * INNER), nn.Linear(2 * INNER, INNER)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, places, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, places, 3, HEADS, INNER // HEADS).permute(2, 0, 3, 1, 4)
        mixed = fn.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, places, INNER))
        return x + self.down(fn.gelu(self.up(self.norm2(x))))


class VisionModel(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """[n, 8, 8] -> [n, ROWS, WIDTH]. Learned queries read the patches; each becomes one row."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Linear(PATCH * PATCH, INNER)
        self.place = nn.Parameter(torch.randn(PATCHES, INNER) * 0.1)
        self.query = nn.Parameter(torch.randn(ROWS, INNER) * 0.5)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(INNER)
        self.row = nn.Linear(INNER, WIDTH)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patch(_patches(images)) + self.place  # all patches of all pictures in one product
        x = torch.cat([x, self.query.expand(len(images), -1, -1)], dim=1)
        for block in self.blocks:
            x = block(x)
        rows: torch.Tensor = self.row(self.norm(x[:, PATCHES:]))
        return rows


def _patches(images: torch.Tensor) -> torch.Tensor:
    per_side = data.SIDE // PATCH
    cells = images.view(-1, per_side, PATCH, per_side, PATCH).transpose(2, 3)
    return cells.reshape(-1, PATCHES, PATCH * PATCH)


class DigitsVision:
    """Encodes pictures on the CPU: deterministic, and the same to the last bit whatever else is in the batch.

    It computes in float64 and rounds to what float16 can hold: batch size, thread count and instruction set change
    only digits that the rounding drops. The network is so small that this costs nothing.
    """

    rows_per_image: int = ROWS
    width: int = WIDTH

    def __init__(self, model: Any) -> None:
        self._model = model.double().eval()

    @classmethod
    def load(cls, weights: Path) -> "DigitsVision":
        """`weights` is the folder that holds vision.safetensors.

        Raises:
            FileNotFoundError, RuntimeError: it is not there, or of another shape.
        """
        model = VisionModel()
        model.load_state_dict(load_file(weights / WEIGHTS_FILE))
        return cls(model)

    def encode(self, pictures: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """RGB pictures, uint8 [height, width, 3] each, to float32 rows [ROWS, WIDTH] each; one forward for all.

        Raises:
            ValueError: a picture is of another shape or type.
        """
        for picture in pictures:
            if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or not picture.size:
                raise ValueError(f"expected RGB, uint8 [height, width, 3], not {picture.dtype} {list(picture.shape)}")
        if not pictures:
            return []
        return self.encode_fitted(np.stack([data.to_8x8(picture) for picture in pictures]))

    def encode_fitted(self, images: data.Floats) -> list[np.ndarray[Any, Any]]:
        """As encode, for pictures [n, 8, 8] that `data.to_8x8` has fitted already."""
        with torch.inference_mode():
            rows = self._model(torch.from_numpy(images).double()).half().float()
        return [np.asarray(one) for one in rows.numpy()]
