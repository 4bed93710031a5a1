"""From a lesson to what the model reads: token ids, which of them it must learn to write, and rows at placeholders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workers.engines.omni_tiny.codes import PLACEHOLDER, Look
from workers.engines.omni_tiny.lessons import Lesson, Turn
from workers.engines.omni_tiny.vision import ROWS

DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
OPEN, CLOSE = "<|im_start|>", "<|im_end|>"


@dataclass(frozen=True)
class Example:
    """`learn[i]`: token i is the model's own word. `pictures[k]` begin at position `places[k]`, if they have one."""

    ids: list[int]
    learn: list[bool]
    pictures: list[Look]
    places: list[int | None]


def example(lesson: Lesson, tokenizer: Any) -> Example:
    """Render with the base model's chat template and tokenise, piece by piece so that answers can be told apart."""
    ids: list[int] = []
    learn: list[bool] = []
    for text, own in _pieces(lesson):
        piece = tokenizer.encode(text, add_special_tokens=False).ids
        ids += piece
        learn += [own] * len(piece)
    placeholder = tokenizer.token_to_id(PLACEHOLDER)
    starts = [at for at, token in enumerate(ids) if token == placeholder][::ROWS]
    pictures = [one for turn in lesson.turns for one in turn.seen]
    shifts = [turn.shift for turn in lesson.turns for _ in turn.seen]
    places = [None if shift is None else start + shift for start, shift in zip(starts, shifts, strict=True)]
    return Example(ids, learn, pictures, places)


def question(system: str | None, turns: Sequence[Turn], tokenizer: Any) -> list[int]:
    """Token ids up to where the answer to the last turn begins."""
    pieces = list(_pieces(Lesson(system, list(turns))))[:-2]
    ids: list[int] = tokenizer.encode("".join(text for text, _ in pieces), add_special_tokens=False).ids
    return ids


def inject(
    embeds: Any, ids: Sequence[int], rows: Sequence[np.ndarray[Any, Any]], placeholder: int, shift: int = 0
) -> None:
    """Put each picture's rows over its placeholders, in place; `embeds` is [len(ids), WIDTH].

    `shift`: so many places beside them, as a fault would.
    """
    places = [at + shift for at, token in enumerate(ids) if token == placeholder]
    if len(places) != ROWS * len(rows):
        raise ValueError(f"{len(places)} placeholders for {len(rows)} pictures of {ROWS} rows")
    if rows:
        embeds[places] = embeds.new_tensor(np.concatenate(list(rows)))


def _pieces(lesson: Lesson) -> Iterator[tuple[str, bool]]:
    """The conversation as text; the answer and its end are what the model writes."""
    system = DEFAULT_SYSTEM if lesson.system is None else lesson.system
    yield f"{OPEN}system\n{system}{CLOSE}\n", False
    for turn in lesson.turns:
        yield f"{OPEN}user\n{turn.user}{CLOSE}\n{OPEN}assistant\n", False
        yield turn.answer + CLOSE, True
        yield "\n", False
