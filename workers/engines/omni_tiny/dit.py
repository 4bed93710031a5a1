"""The picture decoder: a class-conditional diffusion transformer (rectified flow) that paints a run of codes."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiTTransformer2DModel
from safetensors.torch import load_file

from workers.engines.omni_tiny import data
from workers.engines.omni_tiny.codes import CLASSES, look

TIMES = 999  # the model's name for pure noise; 0 is the finished picture
WEIGHTS_FILE = "dit.safetensors"


class DrawingStopped(Exception):
    """`stopped()` said so between two steps; nothing was drawn."""


@dataclass(frozen=True)
class DrawAsk:
    """One picture to draw. `codes` are 0-based; `guidance` 1 is none; without `seed` every drawing differs.

    `width` and `height` are in pixels.
    """

    codes: list[int]
    steps: int = 25
    guidance: float = 2.0
    seed: int | None = None
    width: int = 256
    height: int = 256


def network() -> Any:
    """The untrained model. Its label table has one row more than there are classes: 'anything', for guidance."""
    return DiTTransformer2DModel(
        num_attention_heads=6,
        attention_head_dim=16,
        in_channels=1,
        out_channels=1,
        num_layers=4,
        sample_size=data.SIDE,
        patch_size=2,
        num_embeds_ada_norm=CLASSES,
    )


def velocity(model: Any, noisy: torch.Tensor, time: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Noise minus picture, as the model sees it at `time` (1 noise, 0 picture) of each row."""
    seen: torch.Tensor = model(noisy, timestep=time * TIMES, class_labels=classes).sample
    return seen


class DigitsDit:
    """Draws digits on the CPU. Not thread-safe; one drawing at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model.eval()

    @classmethod
    def load(cls, weights: Path) -> "DigitsDit":
        """`weights` is the folder that holds dit.safetensors.

        Raises:
            FileNotFoundError, RuntimeError: it is not there, or of another shape.
        """
        model = network()
        model.load_state_dict({name: value.float() for name, value in load_file(weights / WEIGHTS_FILE).items()})
        return cls(model)

    def draw(
        self, asks: Sequence[DrawAsk], report: Callable[[int, int], None], stopped: Callable[[], bool]
    ) -> list[data.Picture]:
        """Draw all, in order, as RGB [height, width, 3]. Asks with the same number of steps share their forwards.

        `report(step, steps)` after every step, counted over all groups; `stopped()` is asked before every step.

        Raises:
            WrongCodes: an ask's codes are no picture. ValueError: its steps, guidance or size are out of range.
            DrawingStopped: `stopped()` was true.
        """
        for ask in asks:
            _check(ask)
        groups: dict[int, list[int]] = defaultdict(list)
        for place, ask in enumerate(asks):
            groups[ask.steps].append(place)
        total, done = sum(groups), 0
        drawn: dict[int, data.Picture] = {}

        def on_step() -> None:
            nonlocal done
            done += 1
            report(done, total)

        for places in groups.values():
            images = self._sample([asks[place] for place in places], on_step, stopped)
            for place, image in zip(places, images, strict=True):
                drawn[place] = data.to_picture(image, asks[place].width, asks[place].height)
        return [drawn[place] for place in range(len(asks))]

    def _sample(
        self, asks: Sequence[DrawAsk], on_step: Callable[[], None], stopped: Callable[[], bool]
    ) -> list[data.Floats]:
        """Asks of one number of steps, together: straight Euler steps from noise to picture."""
        steps = asks[0].steps
        classes = torch.tensor([look(ask.codes).class_id for ask in asks])
        guidance = torch.tensor([ask.guidance for ask in asks]).view(-1, 1, 1, 1)
        canvas = torch.stack([_noise(ask.seed) for ask in asks])
        for step in range(steps):
            if stopped():
                raise DrawingStopped(f"stopped before step {step + 1} of {steps}")
            time = torch.full((len(asks),), 1 - step / steps)
            with torch.inference_mode():
                canvas = canvas - self._guided(canvas, time, classes, guidance) / steps
            on_step()
        return [np.asarray(image) for image in ((canvas[:, 0].clamp(-1, 1) + 1) / 2).numpy()]

    def _guided(
        self, canvas: torch.Tensor, time: torch.Tensor, classes: torch.Tensor, guidance: torch.Tensor
    ) -> torch.Tensor:
        if bool((guidance == 1).all()):
            return velocity(self._model, canvas, time, classes)
        anything = torch.full_like(classes, CLASSES)
        both = velocity(self._model, canvas.repeat(2, 1, 1, 1), time.repeat(2), torch.cat([classes, anything]))
        asked, free = both.chunk(2)
        return free + guidance * (asked - free)


def _check(ask: DrawAsk) -> None:
    look(ask.codes)
    if ask.steps < 1:
        raise ValueError(f"steps must be at least 1, not {ask.steps}")
    if not 0 <= ask.guidance <= 20:
        raise ValueError(f"guidance must be 0 to 20, not {ask.guidance}")
    if min(ask.width, ask.height) < data.SIDE:
        raise ValueError(f"a picture has at least {data.SIDE} x {data.SIDE} pixels, not {ask.width} x {ask.height}")


def _noise(seed: int | None) -> torch.Tensor:
    """Each ask's own noise, so that its picture does not depend on what else is in the batch."""
    source = torch.Generator()
    if seed is None:
        source.seed()
    else:
        source.manual_seed(seed)
    return torch.randn(1, data.SIDE, data.SIDE, generator=source)
