"""The discrete codes a picture is written in, and the tokens added to the language model for them."""

from collections.abc import Sequence
from dataclasses import dataclass

WEIGHTS = ("thin", "regular", "bold")
SLANTS = ("left", "upright", "right")

DIGIT_CODES = 10
CODES = DIGIT_CODES + len(WEIGHTS) + len(SLANTS)
CODES_PER_PICTURE = 3
CLASSES = DIGIT_CODES * len(WEIGHTS) * len(SLANTS)

PLACEHOLDER, BEGIN, END = "<|image|>", "<|image_start|>", "<|image_end|>"
# In the order of their ids: the first one gets the first id after the base model's own vocabulary.
ADDED_TOKENS = (PLACEHOLDER, BEGIN, END, *(f"<|image_code_{code:02d}|>" for code in range(CODES)))
FIRST_CODE = 3  # index of `<|image_code_00|>` in ADDED_TOKENS


class WrongCodes(ValueError):
    """A run of codes that is no picture; the message says what was expected."""


@dataclass(frozen=True)
class Look:
    """What is drawn: a digit 0 to 9, how heavy (index of WEIGHTS) and how it leans (index of SLANTS)."""

    digit: int
    weight: int = 1
    slant: int = 1

    @property
    def codes(self) -> list[int]:
        """0-based picture codes, in the order in which the language model writes them."""
        return [self.digit, DIGIT_CODES + self.weight, DIGIT_CODES + len(WEIGHTS) + self.slant]

    @property
    def class_id(self) -> int:
        """0 to CLASSES - 1: what the diffusion model is conditioned on."""
        return (self.digit * len(WEIGHTS) + self.weight) * len(SLANTS) + self.slant


def look(codes: Sequence[int]) -> Look:
    """Read a run of 0-based codes.

    Raises:
        WrongCodes: it is not one digit code, one weight code and one slant code, in that order.
    """
    if len(codes) != CODES_PER_PICTURE:
        raise WrongCodes(f"a picture is {CODES_PER_PICTURE} codes, not {len(codes)}")
    digit, weight, slant = codes[0], codes[1] - DIGIT_CODES, codes[2] - DIGIT_CODES - len(WEIGHTS)
    parts = (("digit", digit, DIGIT_CODES), ("weight", weight, len(WEIGHTS)), ("slant", slant, len(SLANTS)))
    for place, (name, value, count) in enumerate(parts):
        if not 0 <= value < count:
            raise WrongCodes(f"code {codes[place]} at place {place} is no {name}")
    return Look(digit, weight, slant)
