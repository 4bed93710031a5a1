"""Train the vision encoder: its rows shall lie where the language model has the words for what is seen."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as fn

from workers.engines.omni_tiny import augment, data, vision
from workers.engines.omni_tiny.schedule import at_step

VARIANTS, QUICK_VARIANTS = 9, 1
EPOCHS, QUICK_EPOCHS = 16, 1
BATCH, LEARNING_RATE = 128, 2e-3
SHARPNESS = 12.0  # of the choice among words; cosines alone are too flat for cross entropy
NEARNESS = 0.3  # weight of lying on the word itself, beside being nearer to it than to the others


def train(out: Path, words: list[torch.Tensor], seed: int, quick: bool, say: Callable[[str], None]) -> None:
    """Write vision.safetensors (float32) into `out`; about two minutes on one core, seconds when `quick`.

    `words` has one table per row, [choices, WIDTH]: the embeddings that row may mean (see `meanings`).
    """
    torch.manual_seed(seed)
    digits, held_out = data.split()
    images, targets = _views(digits, QUICK_VARIANTS if quick else VARIANTS, seed)
    model = vision.VisionModel()
    with torch.no_grad():
        model.row.weight.mul_(0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.05)
    epochs = QUICK_EPOCHS if quick else EPOCHS
    steps, step = epochs * (len(images) // BATCH), 0
    for epoch in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH)[: len(images) // BATCH]:
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * at_step(step, steps)
            loss = _loss(model(images[chosen]), targets[chosen], words)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        say(f"vision epoch {epoch + 1}/{epochs} loss {loss.item():.4f}")
    save_file(model.state_dict(), out / vision.WEIGHTS_FILE)
    say(f"vision: the word nearest to a held-out digit's row is right {accuracy(out, held_out, words):.1%}")


def accuracy(weights: Path, digits: data.Digits, words: list[torch.Tensor]) -> float:
    """Part of the digits whose first row is nearest to the right word."""
    rows = vision.DigitsVision.load(weights).encode([data.to_picture(one, 96, 96) for one in digits.images])
    nearest = _choice(torch.from_numpy(np.stack(rows))[:, 0], words[0]).argmax(dim=1)
    return float((nearest.numpy() == digits.labels).mean())


def meanings(digits: data.Digits) -> torch.Tensor:
    """[n, ROWS]: which word of its table each row means: digit, weight, slant, and the digit in letters."""
    return torch.tensor([[one.digit, one.weight, one.slant, one.digit] for one in digits.looks])


def _views(digits: data.Digits, variants: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = np.random.default_rng(seed)
    plain = [data.to_8x8(data.to_picture(one, 96, 96)) for one in digits.images]
    more = [augment.variant(one, chance) for _ in range(variants) for one in digits.images]
    return torch.from_numpy(np.stack(plain + more)), meanings(digits).repeat(variants + 1, 1)


def _loss(rows: torch.Tensor, targets: torch.Tensor, words: list[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros(())
    for place, table in enumerate(words):
        row, target = rows[:, place], targets[:, place]
        aim = table[target]
        total = total + fn.cross_entropy(_choice(row, table), target, label_smoothing=0.05)
        total = total + NEARNESS * ((row - aim) ** 2).sum(dim=1).mean() / (aim**2).sum(dim=1).mean()
    return total


def _choice(row: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    centre = table.mean(dim=0)  # words of a kind share most of their embedding
    return SHARPNESS * fn.cosine_similarity((row - centre)[:, None], (table - centre)[None], dim=2)
