"""Train the picture decoder on the training digits."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from workers.engines.omni_tiny import data, dit
from workers.engines.omni_tiny.schedule import at_step

STEPS, QUICK_STEPS = 4000, 60
BATCH, LEARNING_RATE = 128, 1.5e-3
EMA = 0.998  # the drawn model is the running mean of the trained one: far steadier pictures


def train(out: Path, seed: int, quick: bool, say: Callable[[str], None]) -> None:
    """Write dit.safetensors (float16) into `out`; about nine minutes on one core, seconds when `quick`."""
    torch.manual_seed(seed)
    digits, _ = data.split()
    images = torch.from_numpy(digits.images)[:, None] * 2 - 1
    classes = torch.tensor([one.class_id for one in digits.looks])
    model = dit.network().train()
    mean = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    steps = QUICK_STEPS if quick else STEPS
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * at_step(step, steps)
        chosen = torch.randint(0, len(images), (BATCH,))
        loss = _flow_loss(model, images[chosen], classes[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _follow(mean, model, min(EMA, step / (step + 10)))
        if step % 200 == 0 or step == steps - 1:
            say(f"dit step {step + 1}/{steps} loss {loss.item():.4f}")
    save_file({name: value.half().contiguous() for name, value in mean.state_dict().items()}, out / dit.WEIGHTS_FILE)


def _flow_loss(model: Any, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    time = torch.sigmoid(torch.randn(len(images)))  # most of the work is between noise and picture, not at the ends
    noise = torch.randn_like(images)
    mix = time.view(-1, 1, 1, 1)
    seen = dit.velocity(model, (1 - mix) * images + mix * noise, time, classes)
    return torch.nn.functional.mse_loss(seen, noise - images)


def _follow(mean: Any, model: Any, keep: float) -> None:
    with torch.no_grad():
        for slow, fast in zip(mean.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 1 - keep)
