"""The base model's tokenizer with our tokens at its end, and where their rows of the embedding table begin."""

from pathlib import Path
from typing import Any

import torch

from infra import delta
from workers.engines.omni_tiny.codes import ADDED_TOKENS, DIGIT_CODES, SLANTS, WEIGHTS
from workers.engines.omni_tiny.wording import DIGIT_WORDS

ROW_NOISE = 0.04  # an embedding's own spread is 0.14


def tokenizer(base: Path) -> Any:
    """The tokenizer in `base` with the added tokens, in order, after all of its own."""
    return delta.extended_tokenizer(base, ADDED_TOKENS)


def words_of_rows(table: torch.Tensor, made: Any) -> list[torch.Tensor]:
    """For each row of a picture, the embeddings it may mean: digit, weight, slant, digit in letters."""
    digits = [_embedding(table, made, str(digit)) for digit in range(DIGIT_CODES)]
    letters = [_embedding(table, made, f" {word}") for word in DIGIT_WORDS]
    weights, slants = ([_embedding(table, made, f" {word}") for word in kind] for kind in (WEIGHTS, SLANTS))
    return [torch.stack(one) for one in (digits, weights, slants, letters)]


def first_rows(table: torch.Tensor, made: Any) -> torch.Tensor:
    """Where training of the added rows starts: near a word of like meaning, each a little apart from it."""
    digits, weights, slants, letters = words_of_rows(table, made)
    marks = [_embedding(table, made, word) for word in (" missing", " picture", "]")]
    rows = torch.cat([torch.stack(marks), (digits + letters) / 2, weights, slants])
    return rows + torch.randn_like(rows) * ROW_NOISE


def _embedding(table: torch.Tensor, made: Any, text: str) -> torch.Tensor:
    (token,) = made.encode(text, add_special_tokens=False).ids
    row: torch.Tensor = table[token]
    return row
