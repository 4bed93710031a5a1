"""Teach the language model to read rows and write codes: a few added rows, low-rank changes in its upper layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as fn
from transformers import AutoModelForCausalLM

from infra import delta
from workers.engines.omni_tiny import base_answers, data, lora, views, vocabulary
from workers.engines.omni_tiny.build import DELTA_FILE
from workers.engines.omni_tiny.lessons import Teacher
from workers.engines.omni_tiny.prompts import Example, example
from workers.engines.omni_tiny.schedule import at_step

# Below it nothing is trained, so nothing is remembered for the way back: a third cheaper, and words mean what they did.
FIRST_LAYER = 10
STEPS, QUICK_STEPS = 150, 2
BATCH = 8  # conversations
POOL = 4  # batches made up together and sorted by length, so that little is padding
LORA_RATE, ROWS_RATE = 1.2e-3, 3e-3
MAX_NORM = 1.0


@dataclass(frozen=True)
class Student:
    """The base model, what is trained of it, and the table that holds the trained rows at its end."""

    model: Any
    table: torch.Tensor
    rows: torch.nn.Parameter
    changes: dict[str, lora.LoraLinear]

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        size = len(self.table)
        embeds = self.table[ids.clamp(max=size - 1)]
        embeds[ids >= size] = self.rows.detach()[ids[ids >= size] - size].to(embeds.dtype)
        return embeds

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.cat([(hidden @ self.table.T).float(), hidden.float() @ self.rows.T], dim=-1)


def train(base: Path, out: Path, seed: int, quick: bool, say: Callable[[str], None]) -> None:
    """Write delta.safetensors (float16) into `out`, where vision.safetensors is.

    Nine minutes of one core that multiplies bfloat16 by itself, a quarter of an hour of one that does not.
    """
    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    tokenizer = vocabulary.tokenizer(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=_dtype()).requires_grad_(False)
    answers = {} if quick else base_answers.ask(model, tokenizer, say)
    student = _student(model, tokenizer)
    teacher, album = Teacher(chance, answers), views.Album(out, data.split()[0], chance, quick)
    optimizer = torch.optim.AdamW(
        [
            {"params": [one for change in student.changes.values() for one in (change.a, change.b)], "rate": LORA_RATE},
            {"params": [student.rows], "rate": ROWS_RATE},
        ],
        lr=LORA_RATE,
        betas=(0.9, 0.98),
        weight_decay=0.0,
    )
    steps = QUICK_STEPS if quick else STEPS
    waiting: list[list[Example]] = []
    for step in range(steps):
        if not waiting:
            waiting = _batches([example(teacher.lesson(), tokenizer) for _ in range(BATCH * POOL)], chance)
        loss = _step(student, waiting.pop(), album, optimizer, at_step(step, steps))
        if step % 10 == 0 or step == steps - 1:
            say(f"llm step {step + 1}/{steps} loss {loss:.4f}")
    save_file({**lora.tensors(student.changes), delta.ROWS: student.rows.detach().half()}, out / DELTA_FILE)


def _dtype() -> torch.dtype:
    """Half the time where the CPU multiplies bfloat16 by itself; elsewhere it would take five times as long."""
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


def _student(model: Any, tokenizer: Any) -> Student:
    table = model.get_input_embeddings().weight.detach()
    rows = torch.nn.Parameter(vocabulary.first_rows(table.float(), tokenizer))
    return Student(model.model, table, rows, lora.attach(model.model.layers, FIRST_LAYER))


def _batches(examples: list[Example], chance: np.random.Generator) -> list[list[Example]]:
    ordered = sorted(examples, key=lambda one: len(one.ids))
    batches = [ordered[at : at + BATCH] for at in range(0, len(ordered), BATCH)]
    return [batches[place] for place in chance.permutation(len(batches))]


def _step(
    student: Student, batch: Sequence[Example], album: views.Album, optimizer: torch.optim.Optimizer, pace: float
) -> float:
    ids, learn = _padded(batch)
    embeds = student.embed(ids)
    for line, one in enumerate(batch):
        for picture, place in zip(one.pictures, one.places, strict=True):
            if place is not None:
                rows = album.rows(picture)
                embeds[line, place : place + len(rows)] = rows
    hidden = student.model(inputs_embeds=embeds, use_cache=False).last_hidden_state
    # Token i is foretold at i - 1; the wide product with the vocabulary is done where there is something to learn only.
    loss = fn.cross_entropy(student.logits(hidden[:, :-1][learn[:, 1:]]), ids[:, 1:][learn[:, 1:]])
    for group in optimizer.param_groups:
        group["lr"] = group["rate"] * pace
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([one for group in optimizer.param_groups for one in group["params"]], MAX_NORM)
    optimizer.step()
    return float(loss.item())


def _padded(batch: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Padding is at the end, where a causal model's words before it cannot see it."""
    longest = max(len(one.ids) for one in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    learn = torch.zeros(len(batch), longest, dtype=torch.bool)
    for line, one in enumerate(batch):
        ids[line, : len(one.ids)] = torch.tensor(one.ids)
        learn[line, : len(one.ids)] = torch.tensor(one.learn)
    return ids, learn
