"""The learning rate over a training run."""

import math

WARM_UP = 0.05  # part of all steps
FLOOR = 0.02  # of the full rate, at the end


def at_step(step: int, steps: int) -> float:
    """Factor on the full learning rate: a linear rise, then half a cosine down."""
    warm = max(1, round(steps * WARM_UP))
    if step < warm:
        return (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    return FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * done)) / 2
