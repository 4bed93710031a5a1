"""triptych-omni-tiny: digits it has never seen, and digits it is asked to draw."""

import base64
import io
import re

import numpy as np
import openai
from numpy.typing import NDArray
from PIL import Image
from sklearn.svm import SVC

from tests.bench.omni.asking import about, all_of, client, png
from tests.stack import Stack
from workers.engines.omni_tiny import data
from workers.engines.omni_tiny.answers import right_digits

MODEL = "triptych-omni-tiny"
SIDE = 160  # pixels of the pictures that are shown
TOGETHER = 8  # pictures in one question
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
QUESTIONS = ("Which digit is this?", "What number do you see?", "Name the digit in this picture.")
ORDERS = ("Draw a {word}.", "Please draw the digit {digit}.", "Paint a {word} for me.", "Make a picture of a {word}.")


def named(answer: str) -> int | None:
    """The digit that an answer names; None when it names none, or several."""
    low = answer.lower()
    found = {int(one) for one in re.findall(r"\d", low)}
    found |= {number for number, word in enumerate(WORDS) if re.search(rf"\b{word}\b", low)}
    return found.pop() if len(found) == 1 else None


def recognised(stack: Stack, size: int) -> dict[str, object]:
    asker, held_out = client(stack.url), data.split()[1]
    # Spread over the whole held-out set, so that every class and hand is in.
    chosen = np.linspace(0, len(held_out.labels) - 1, min(size, len(held_out.labels))).astype(int)

    def right(number: int) -> bool:
        shown = png(data.to_picture(held_out.images[number], SIDE, SIDE))
        answer = about(asker, MODEL, [shown], QUESTIONS[number % len(QUESTIONS)], max_tokens=16)
        return named(answer.choices[0].message.content or "") == held_out.labels[number]

    verdicts = all_of(right, chosen.tolist())
    return {"digit_accuracy": sum(verdicts) / len(verdicts), "digits_shown": len(verdicts)}


def together(stack: Stack, size: int) -> dict[str, object]:
    """Eight pictures in one question, so often that `size` digits are shown, or a few more."""
    asker, held_out = client(stack.url), data.split()[1]
    order = np.random.default_rng(len(held_out.labels)).permutation(len(held_out.labels))

    def right(number: int) -> int:
        chosen = order.take(range(number * TOGETHER, (number + 1) * TOGETHER), mode="wrap")
        shown = [png(data.to_picture(image, SIDE, SIDE)) for image in held_out.images[chosen]]
        answer = about(asker, MODEL, shown, "Which digits are these?", max_tokens=48).choices[0].message.content or ""
        return right_digits(held_out.labels[chosen].tolist(), answer)

    questions = -(-size // TOGETHER)
    found = all_of(right, range(questions))
    return {"digits_in_8": sum(found) / (questions * TOGETHER), "questions_with_8": questions}


def drawn(stack: Stack, size: int) -> dict[str, object]:
    asker, judge = client(stack.url), Judge()

    def right(number: int) -> bool:
        digit = number % 10
        order = ORDERS[number // 10 % len(ORDERS)].format(word=WORDS[digit], digit=digit)
        try:
            made = asker.images.generate(model=MODEL, prompt=order, size="256x256", extra_body={"seed": number})
        except openai.InternalServerError as error:
            print(f"{order} {error}", flush=True)  # no picture is a wrong picture
            return False
        assert made.data and made.data[0].b64_json
        return judge(_rgb(base64.b64decode(made.data[0].b64_json))) == digit

    verdicts = all_of(right, range(size))
    return {"drawn_accuracy": sum(verdicts) / len(verdicts), "digits_drawn": len(verdicts)}


def _rgb(image: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))


class Judge:
    """Reads a picture; has learned from the data set alone, and knows nothing of the model it judges."""

    def __init__(self) -> None:
        train = data.split()[0]
        self._classifier = SVC(gamma=0.1, C=10).fit(train.images.reshape(len(train.images), -1), train.labels)

    def __call__(self, rgb: NDArray[np.uint8]) -> int:
        small = Image.fromarray(rgb).convert("L").resize((8, 8), Image.Resampling.BOX)
        return int(self._classifier.predict(np.asarray(small, np.float32).reshape(1, -1) / 255)[0])
