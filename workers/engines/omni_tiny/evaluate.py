"""What the trained parts are worth: greedy answers and drawn digits, on held-out digits, with plain transformers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC
from transformers import AutoModelForCausalLM

from workers.engines.omni_tiny import data, vocabulary
from workers.engines.omni_tiny.answers import codes_of
from workers.engines.omni_tiny.codes import CODES_PER_PICTURE, PLACEHOLDER
from workers.engines.omni_tiny.dit import DigitsDit, DrawAsk
from workers.engines.omni_tiny.lessons import PICTURE_IN, Turn
from workers.engines.omni_tiny.prompts import CLOSE, inject, question
from workers.engines.omni_tiny.vision import DigitsVision

BATCH = 24
MAX_TOKENS = 40
SHOWN = 128  # pixels; the side of pictures that are asked about
EVERY = slice(None)
ORDER_SEED = 7  # of the pictures that are shown together; figures are only comparable on the same ones


@dataclass(frozen=True)
class Asked:
    """A conversation to be answered; `rows` are those of its pictures, in order.

    `shift` puts them that many places beside their placeholders, to see that it shows.
    """

    turns: Sequence[Turn]
    rows: Sequence[np.ndarray[Any, Any]] = ()
    system: str | None = None
    shift: int = 0


class Reader:
    """The built model folder, answering greedily."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.tokenizer = vocabulary.tokenizer(base)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._placeholder = self.tokenizer.token_to_id(PLACEHOLDER)

    def answer(self, asked: Sequence[Asked]) -> list[str]:
        """One text each, with the picture tokens in it, without the mark of its end."""
        return [text for at in range(0, len(asked), BATCH) for text in self._batch(asked[at : at + BATCH])]

    def _batch(self, asked: Sequence[Asked]) -> list[str]:
        prompts = [question(one.system, one.turns, self.tokenizer) for one in asked]
        longest, pad = max(map(len, prompts)), self.tokenizer.token_to_id(CLOSE)
        embeds = torch.zeros(len(asked), longest, self._model.config.hidden_size)
        seen = torch.zeros(len(asked), longest, dtype=torch.long)
        for line, (one, ids) in enumerate(zip(asked, prompts, strict=True)):
            filled = self._model.get_input_embeddings()(torch.tensor(ids)).detach()
            inject(filled, ids, one.rows, self._placeholder, one.shift)
            embeds[line, -len(ids) :], seen[line, -len(ids) :] = filled, 1
        written = self._model.generate(
            inputs_embeds=embeds, attention_mask=seen, do_sample=False, max_new_tokens=MAX_TOKENS, pad_token_id=pad
        ).tolist()
        return [self._text(one[: one.index(pad)] if pad in one else one) for one in written]

    def _text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text


def judge() -> Callable[[Sequence[data.Picture]], list[int]]:
    """A support vector machine that has seen training digits only, never one of ours."""
    digits, _ = data.split()
    machine = SVC(C=10, gamma=0.25).fit(_flat(digits.images), digits.labels)

    def read(pictures: Sequence[data.Picture]) -> list[int]:
        shown = [_shrunk(picture) for picture in pictures]
        return [int(digit) for digit in machine.predict(_flat(np.stack(shown)))]

    return read


def read_digits(
    reader: Reader, vision: DigitsVision, wordings: Sequence[str], part: slice = EVERY
) -> list[tuple[int, str]]:
    """(true digit, answer) for held-out digits, asked in one wording after the other (with the picture in them)."""
    held_out = data.split()[1]
    rows = vision.encode([data.to_picture(image, SHOWN, SHOWN) for image in held_out.images[part]])
    asked = [Asked([Turn(wordings[place % len(wordings)], "")], [one]) for place, one in enumerate(rows)]
    return list(zip(held_out.labels[part].tolist(), reader.answer(asked), strict=True))


def read_together(
    reader: Reader, vision: DigitsVision, wordings: Sequence[str], pictures: int, times: int
) -> list[tuple[list[int], str]]:
    """(true digits, answer) for `pictures` held-out digits in one question, then the next ones, `times` in all."""
    held_out = data.split()[1]
    rows = vision.encode([data.to_picture(image, SHOWN, SHOWN) for image in held_out.images])
    order = np.random.default_rng(ORDER_SEED).permutation(len(rows))
    shown = [order.take(range(at * pictures, (at + 1) * pictures), mode="wrap").tolist() for at in range(times)]
    asked = [
        Asked(
            [Turn("\n".join([PICTURE_IN] * pictures + [wordings[place % len(wordings)]]), "")], [rows[i] for i in one]
        )
        for place, one in enumerate(shown)
    ]
    return [(held_out.labels[one].tolist(), answer) for one, answer in zip(shown, reader.answer(asked), strict=True)]


def drawn_digits(reader: Reader, dit: DigitsDit, wordings: Sequence[str], steps: int = 25) -> list[tuple[int, int]]:
    """(asked digit, what the judge sees; -1 where no picture came) for ten digits in each wording."""
    asks = [(digit, wording) for wording in wordings for digit in range(10)]
    answers = reader.answer([Asked([Turn(wording.format(digit), "")]) for digit, wording in asks])
    runs = [codes_of(answer) for answer in answers]
    drawn = [place for place, run in enumerate(runs) if len(run) == CODES_PER_PICTURE]
    pictures = dit.draw([DrawAsk(runs[place], steps, seed=place) for place in drawn], lambda *_: None, lambda: False)
    seen = dict(zip(drawn, judge()(pictures), strict=True)) if drawn else {}
    return [(digit, seen.get(place, -1)) for place, (digit, _) in enumerate(asks)]


def _flat(images: data.Floats) -> data.Floats:
    return images.reshape(len(images), -1)


def _shrunk(picture: data.Picture) -> data.Floats:
    """Back to 8 x 8 by taking the middle of each cell, which is what `to_picture` spread."""
    height, width = picture.shape[:2]
    rows, columns = (((np.arange(data.SIDE) + 0.5) * size / data.SIDE).astype(int) for size in (height, width))
    return (picture[np.ix_(rows, columns)][:, :, 0] / 255).astype(np.float32)
