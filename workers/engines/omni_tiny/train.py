"""Train all three parts. Two processes, one thread each: on two cores the painter costs no time beside the reader."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from infra.delta import EMBEDDINGS, MODEL_FILE
from workers.engines.omni_tiny import evaluate, train_dit, train_llm, train_vision, vocabulary
from workers.engines.omni_tiny.build import build
from workers.engines.omni_tiny.dit import DigitsDit
from workers.engines.omni_tiny.lessons import PICTURE_IN
from workers.engines.omni_tiny.vision import DigitsVision

# A second thread costs more than it gives as soon as anything else runs on the machine.
THREADS = 1
DRAWN_WORDINGS = ("Draw a {}.", "Please paint a {}", "make a picture of {}", "Generate an image of the digit {}.")
READ_WORDINGS = (
    PICTURE_IN + "Which digit is this?",
    "What digit do you see here? " + PICTURE_IN,  # not among the trained wordings
    PICTURE_IN + "\nWhat is the number in this picture?",  # nor this
    "Please read this digit." + PICTURE_IN,
)


class TrainingFailed(Exception):
    """A part did not come to its end; its own process has said why."""


def train(base: Path, out: Path, seed: int, quick: bool) -> None:
    """Write delta, vision and dit.safetensors into `out`, and the served folder into `out`/served; print the figures.

    `base` is the folder of SmolLM2-135M-Instruct. `quick` goes through all of it in a minute or two and learns nothing.

    Raises:
        TrainingFailed: the painter's process ended badly.
        FileNotFoundError: the base model is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    say = _speaker(time.monotonic())
    torch.set_num_threads(THREADS)
    painter = multiprocessing.get_context("spawn").Process(target=_train_dit, args=(out, seed, quick), daemon=True)
    painter.start()
    try:
        table = load_file(base / MODEL_FILE)[EMBEDDINGS].float()
        words = vocabulary.words_of_rows(table, vocabulary.tokenizer(base))
        train_vision.train(out, words, seed, quick, say)
        train_llm.train(base, out, seed, quick, say)
        painter.join()
    finally:
        painter.kill()
    if painter.exitcode != 0:
        raise TrainingFailed(f"training the picture decoder ended with {painter.exitcode}")
    say("trained; building and measuring")
    build(base, out, out / "served")
    report(base, out, quick, say)


def report(base: Path, out: Path, quick: bool, say: Callable[[str], None]) -> None:
    """Print what the trained parts reach on held-out digits."""
    part, times = (slice(None, None, 40), 1) if quick else (evaluate.EVERY, 5)
    reader = evaluate.Reader(out / "served", base)
    answers = evaluate.read_digits(reader, DigitsVision.load(out), READ_WORDINGS, part)
    right = sum(answer == f"The digit is {digit}." for digit, answer in answers)
    say(f"digits read: {right}/{len(answers)} = {right / len(answers):.1%}")
    drawn = evaluate.drawn_digits(reader, DigitsDit.load(out), DRAWN_WORDINGS * times)
    right = sum(asked == seen for asked, seen in drawn)
    say(f"digits drawn: {right}/{len(drawn)} = {right / len(drawn):.1%}")


def _train_dit(out: Path, seed: int, quick: bool) -> None:
    torch.set_num_threads(THREADS)
    train_dit.train(out, seed, quick, _speaker(time.monotonic()))


def _speaker(began: float) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)  # noqa: T201 - progress of a command

    return say
