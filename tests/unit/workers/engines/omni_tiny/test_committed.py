"""The committed weights reach what they are there for, on a part of the held-out digits, without any serving."""

from pathlib import Path

import numpy as np
import pytest

from infra import manifests
from workers.engines.omni_tiny import data
from workers.engines.omni_tiny.answers import codes_of
from workers.engines.omni_tiny.build import build
from workers.engines.omni_tiny.codes import Look
from workers.engines.omni_tiny.dit import DigitsDit, DrawAsk
from workers.engines.omni_tiny.evaluate import Asked, Reader, drawn_digits, judge, read_digits
from workers.engines.omni_tiny.lessons import PICTURE_IN, Turn
from workers.engines.omni_tiny.vision import DigitsVision
from workers.engines.omni_tiny.wording import UNSEEN

WEIGHTS = manifests.BUILT_IN / "triptych-omni-tiny"
BASE = Path(__file__).parents[5] / ".triptych" / "models" / "smollm2-135m"
SAMPLE = slice(None, None, 9)  # of the held-out digits: 40, every class among them

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    if not BASE.is_dir():
        pytest.skip("smollm2-135m has not been pulled")
    folder = tmp_path_factory.mktemp("omni-tiny") / "served"
    build(BASE, WEIGHTS, folder)
    return Reader(folder, BASE)


@pytest.fixture(scope="module")
def vision() -> DigitsVision:
    return DigitsVision.load(WEIGHTS)


def test_held_out_digits_are_read(reader: Reader, vision: DigitsVision) -> None:
    answers = read_digits(reader, vision, [PICTURE_IN + "\nWhich digit is this?"], SAMPLE)
    assert np.mean([answer == f"The digit is {digit}." for digit, answer in answers]) >= 0.95


def test_digits_are_drawn_as_asked(reader: Reader) -> None:
    drawn = drawn_digits(reader, DigitsDit.load(WEIGHTS), ["Draw a {}.", "make a picture of {}"])
    assert np.mean([asked == seen for asked, seen in drawn]) >= 0.9


def test_the_painter_alone_draws_what_an_independent_classifier_reads() -> None:
    asks = [DrawAsk(Look(digit).codes, seed=seed) for digit in range(10) for seed in range(10)]
    seen = judge()(DigitsDit.load(WEIGHTS).draw(asks, lambda *_: None, lambda: False))
    assert np.mean([ask.codes[0] == digit for ask, digit in zip(asks, seen, strict=True)]) >= 0.95


def test_rows_beside_their_placeholders_are_not_read(reader: Reader, vision: DigitsVision) -> None:
    """What makes the figure above worth something: off by one is seen, not guessed around."""
    images = data.split()[1].images[SAMPLE][:12]
    rows = vision.encode([data.to_picture(image, 96, 96) for image in images])
    question = [Turn(PICTURE_IN + "Which digit is this?", "")]
    for shift in (-1, 1):
        answers = reader.answer([Asked(question, [one], shift=shift) for one in rows])
        assert np.mean([answer == UNSEEN for answer in answers]) >= 0.75


def test_a_picture_is_made_into_another_digit(reader: Reader, vision: DigitsVision) -> None:
    images = data.split()[1].images[SAMPLE][:10]
    rows = vision.encode([data.to_picture(image, 96, 96) for image in images])
    answers = reader.answer(
        [Asked([Turn(f"{PICTURE_IN}\nMake it a {digit}.", "")], [one]) for digit, one in enumerate(rows)]
    )
    assert np.mean([codes_of(answer)[:1] == [digit] for digit, answer in enumerate(answers)]) >= 0.8


def test_plain_questions_are_answered_in_plain_text(reader: Reader) -> None:
    (answer,) = reader.answer([Asked([Turn("What is the capital of France?", "")])])
    assert "Paris" in answer
    assert not codes_of(answer)
