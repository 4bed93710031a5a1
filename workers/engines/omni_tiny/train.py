"""Train all three parts. Two processes, one thread each: on two cores the painter costs no time beside the reader."""

import hashlib
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from infra.delta import EMBEDDINGS, MODEL_FILE
from infra.model_paths import BUILT_IN
from workers.engines.omni_tiny import dit, evaluate, train_dit, train_llm, train_vision, vision, vocabulary
from workers.engines.omni_tiny.answers import right_digits
from workers.engines.omni_tiny.build import DELTA_FILE, build
from workers.engines.omni_tiny.dit import DigitsDit
from workers.engines.omni_tiny.lessons import PICTURE_IN
from workers.engines.omni_tiny.vision import DigitsVision

# A second thread costs more than it gives as soon as anything else runs on the machine.
THREADS = 1
MADE = (DELTA_FILE, vision.WEIGHTS_FILE, dit.WEIGHTS_FILE)
MODEL = "triptych-omni-tiny"
DRAWN_WORDINGS = ("Draw a {}.", "Please paint a {}", "make a picture of {}", "Generate an image of the digit {}.")
READ_WORDINGS = (
    PICTURE_IN + "Which digit is this?",
    "What digit do you see here? " + PICTURE_IN,  # not among the trained wordings
    PICTURE_IN + "\nWhat is the number in this picture?",  # nor this
    "Please read this digit." + PICTURE_IN,
)
TOGETHER_WORDINGS = ("Which digits are these?", "Tell me all the digits, in order.")  # the second was not trained
TOGETHER = (2, 4, 8)  # pictures in one question


class TrainingFailed(Exception):
    """A part did not come to its end; its own process has said why."""


def train(base: Path, out: Path, seed: int, quick: bool) -> None:
    """Write delta, vision and dit.safetensors into `out`, and the served folder into `out`/served; print the figures.

    `base` is the folder of SmolLM2-135M-Instruct. `quick` goes through all of it in a minute or two and learns nothing.
    The three files appear together, when all are trained: interrupted before, `out` holds what it held.

    Raises:
        TrainingFailed: the painter's process ended badly.
        FileNotFoundError: the base model is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    say = _speaker(time.monotonic())
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory(dir=out, prefix=".unfinished-") as scratch:
        _train_parts(base, Path(scratch), seed, quick, say)
        for name in MADE:
            (Path(scratch) / name).replace(out / name)
    say("trained; building and measuring")
    build(base, out, out / "served")
    report(base, out, quick, say)
    say(how_to_serve(out))


def report(base: Path, out: Path, quick: bool, say: Callable[[str], None]) -> None:
    """Print what the trained parts reach on held-out digits."""
    part, times = (slice(None, None, 40), 1) if quick else (evaluate.EVERY, 5)
    reader, eyes = evaluate.Reader(out / "served", base), DigitsVision.load(out)
    answers = evaluate.read_digits(reader, eyes, READ_WORDINGS, part)
    right = sum(answer == f"The digit is {digit}." for digit, answer in answers)
    say(f"digits read: {_share(right, len(answers))}")
    for pictures in TOGETHER:
        lists = evaluate.read_together(reader, eyes, TOGETHER_WORDINGS, pictures, 2 if quick else 40)
        right = sum(right_digits(digits, answer) for digits, answer in lists)
        say(f"digits read, {pictures} pictures in one question: {_share(right, pictures * len(lists))}")
    drawn = evaluate.drawn_digits(reader, DigitsDit.load(out), DRAWN_WORDINGS * times)
    say(f"digits drawn: {_share(sum(asked == seen for asked, seen in drawn), len(drawn))}")


def how_to_serve(out: Path) -> str:
    """What is left to do before a worker takes the files in `out`: it takes none that its manifest does not name."""
    pins = (f'pins = {{ "{name}" = "{hashlib.sha256((out / name).read_bytes()).hexdigest()}" }}' for name in MADE)
    return "\n    ".join(
        [
            "to serve them, copy the three files:",
            f"  cp {out}/*.safetensors {BUILT_IN / MODEL}/",
            f"and have these lines in {BUILT_IN / MODEL}.toml instead of those for the same files:",
            *(f"  {one}" for one in pins),
        ]
    )


def _train_parts(base: Path, out: Path, seed: int, quick: bool, say: Callable[[str], None]) -> None:
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


def _train_dit(out: Path, seed: int, quick: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the whole terminal; the process that started this one kills it
    torch.set_num_threads(THREADS)
    train_dit.train(out, seed, quick, _speaker(time.monotonic()))


def _share(right: int, of: int) -> str:
    return f"{right}/{of} = {right / of:.1%}"


def _speaker(began: float) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)  # noqa: T201 - progress of a command

    return say
