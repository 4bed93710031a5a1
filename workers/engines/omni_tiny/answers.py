"""What an answer says: the picture or the digits in it."""

import operator
import re
from collections.abc import Sequence

from workers.engines.omni_tiny.codes import ADDED_TOKENS, BEGIN, END, FIRST_CODE


def codes_of(answer: str) -> list[int]:
    """The 0-based codes of the first picture in an answer; empty if there is none that ends."""
    inside = answer.partition(BEGIN)[2].partition(END)
    if not inside[1]:
        return []
    names = [f"{part}|>" for part in inside[0].split("|>") if part]
    return [ADDED_TOKENS.index(name) - FIRST_CODE for name in names if name in ADDED_TOKENS]


def right_digits(digits: Sequence[int], answer: str) -> int:
    """How many digits of an answer stand where they should; none in one that lists more or fewer."""
    named = [int(one) for one in re.findall(r"\d", answer)]
    return sum(map(operator.eq, digits, named)) if len(named) == len(digits) else 0
