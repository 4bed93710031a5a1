"""Training conversations, made up from the wordings: what the user sends, what the model is to answer."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from workers.engines.omni_tiny import wording as say
from workers.engines.omni_tiny.codes import ADDED_TOKENS, BEGIN, END, FIRST_CODE, PLACEHOLDER, Look
from workers.engines.omni_tiny.vision import ROWS

PICTURE_IN = BEGIN + PLACEHOLDER * ROWS + END
BETWEEN = ("", "\n", " ")  # clients put pictures and text together in each of these ways
TURNS = (1, 2, 3, 4)
TURN_SHARES = (0.35, 0.25, 0.25, 0.15)
DEFAULT_SYSTEM_SHARE, PLAIN_STYLE_SHARE = 0.6, 0.5

ARTICLE = re.compile(r"\b([Aa]) (8|eight)\b")

T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """One question and its answer. `seen` are the looks of the question's pictures, in order.

    `shift`: the rows lie that many places away from their placeholders, as a faulty prompt would have them; None:
    there are no rows at all.
    """

    user: str
    answer: str
    seen: tuple[Look, ...] = ()
    shift: int | None = 0


@dataclass(frozen=True)
class Lesson:
    """A conversation. `system` None is the chat template's own system message."""

    system: str | None
    turns: list[Turn] = field(default_factory=list)


def picture_out(one: Look) -> str:
    """A picture as the model writes it."""
    return BEGIN + "".join(ADDED_TOKENS[FIRST_CODE + code] for code in one.codes) + END


class Teacher:
    """Makes up lessons; the same ones for the same `chance`. `answers` are plain questions' answers."""

    def __init__(self, chance: np.random.Generator, answers: Mapping[str, str]) -> None:
        self._chance = chance
        self._answers = list(answers.items())
        self._kinds: list[tuple[float, Callable[[], Turn]]] = [
            (0.30, self._read),
            (0.06, self._read_short),
            (0.13, self._read_many),
            (0.20, self._draw),
            (0.03, self._draw_two),
            (0.16, self._edit),
            (0.05, self._unseen),
            (0.07 if answers else 0.0, self._chat),
        ]

    def lesson(self) -> Lesson:
        """One conversation of one to four turns."""
        system = None if self._chance.random() < DEFAULT_SYSTEM_SHARE else self._pick(say.SYSTEMS)
        shares = np.array([share for share, _ in self._kinds])
        turns: list[Turn] = []
        for _ in range(self._chance.choice(TURNS, p=TURN_SHARES)):
            if turns and len(turns[-1].seen) == 1 and turns[-1].shift == 0 and self._chance.random() < 0.5:
                turns.append(self._follow_up(turns[-1].seen[0]))
            else:
                turns.append(self._kinds[self._chance.choice(len(shares), p=shares / shares.sum())][1]())
        return Lesson(system, [replace(turn, user=self._article(turn.user)) for turn in turns])

    def _read(self) -> Turn:
        one = self._look()
        return Turn(self._beside(say.READ), f"The digit is {one.digit}.", (one,))

    def _read_short(self) -> Turn:
        one = self._look()
        return Turn(self._beside(say.READ_SHORT), f"{one.digit}", (one,))

    def _read_many(self) -> Turn:
        count = int(self._chance.choice((2, 3, 4, 8), p=(0.55, 0.25, 0.15, 0.05)))
        seen = tuple(self._look() for _ in range(count))
        digits = [one.digit for one in seen]
        kind = self._chance.random()
        if count == 2 and kind < 0.25:
            return Turn(
                self._beside(say.READ_SUM, count), f"{digits[0]} + {digits[1]} = {digits[0] + digits[1]}.", seen
            )
        if count <= len(say.ORDINALS) and kind < 0.45:
            place = int(self._chance.integers(count))
            question = [one.format(say.ORDINALS[place]) for one in say.READ_NTH]
            return Turn(self._beside(question, count), f"The {say.ORDINALS[place]} digit is {digits[place]}.", seen)
        listed = ", ".join(map(str, digits[:-1])) + f" and {digits[-1]}"
        return Turn(self._beside(say.READ_MANY, count), f"The digits are {listed}.", seen)

    def _draw(self) -> Turn:
        one, style = self._styled()
        return Turn(self._pick(say.DRAW).format(style.format(self._name(one.digit))), _drawn(one))

    def _draw_two(self) -> Turn:
        one, two = self._default_look(), self._default_look()
        question = self._pick(say.DRAW_TWO).format(self._name(one.digit), self._name(two.digit))
        return Turn(question, _drawn(one) + "\n" + _drawn(two))

    def _edit(self) -> Turn:
        seen = self._look()
        question, wanted = self._wish(seen)
        return Turn(self._beside([question]), _drawn(wanted), (seen,))

    def _unseen(self) -> Turn:
        """What a fault in the prompt looks like: no picture, or rows beside their placeholders."""
        if self._chance.random() < 0.35:
            return Turn(self._pick(say.READ[:-1]), say.UNSEEN)
        shift = self._pick((-2, -1, 1, 2, None))
        return Turn(self._beside(say.READ), say.UNSEEN, (self._look(),), shift)

    def _chat(self) -> Turn:
        return Turn(*self._pick(self._answers))

    def _follow_up(self, seen: Look) -> Turn:
        """About a picture of an earlier turn."""
        digit, kind = seen.digit, int(self._chance.integers(6))
        if kind == 0:
            return Turn(self._pick(say.AGAIN), f"The digit is {digit}.")
        if kind == 1:
            return Turn(self._pick(say.PARITY), f"{digit} is {'odd' if digit % 2 else 'even'}.")
        if kind == 2:
            return Turn(self._pick(say.NEXT), f"{digit + 1} comes after {digit}.")
        if kind == 3:
            return Turn(self._pick(say.IN_WORDS), f"{say.DIGIT_WORDS[digit].capitalize()}.")
        if kind == 4:
            other = self._default_look()
            return Turn(self._pick(say.THEN_DRAW).format(self._name(other.digit)), _drawn(other))
        question, wanted = self._wish(seen)
        return Turn(question, _drawn(wanted))

    def _wish(self, seen: Look) -> tuple[str, Look]:
        """What to make of a picture, and the picture it should become."""
        kind = self._chance.random()
        if kind < 0.40:
            digit = int(self._chance.integers(10))
            return self._pick(say.BECOME).format(self._name(digit)), replace(seen, digit=digit)
        if kind < 0.62:
            return self._pick(say.COPY), seen
        if kind < 0.74 and seen.digit < 9:
            return self._pick(say.DRAW_NEXT), replace(seen, digit=seen.digit + 1)
        if kind < 0.82 and seen.digit > 0:
            return self._pick(say.DRAW_BEFORE), replace(seen, digit=seen.digit - 1)
        if kind < 0.91:
            weight = int(self._chance.integers(3))
            return self._pick(say.RESTYLE).format(self._pick(say.WEIGHT_WORDS[weight])), replace(seen, weight=weight)
        slant = int(self._chance.integers(3))
        return self._pick(say.RESTYLE).format(self._pick(say.SLANT_WORDS[slant])), replace(seen, slant=slant)

    def _styled(self) -> tuple[Look, str]:
        """A picture to draw, and how its digit is called for: with `{}` for the digit."""
        one = self._default_look()
        if self._chance.random() < PLAIN_STYLE_SHARE:
            return one, "{}"
        kind = int(self._chance.integers(3))
        before, after = "", ""
        if kind != 1:
            one = replace(one, weight=int(self._chance.integers(3)))
            before = self._pick(say.WEIGHT_WORDS[one.weight]) + " "
        if kind != 0:
            one = replace(one, slant=int(self._chance.integers(3)))
            after = " " + self._pick(say.SLANT_WORDS[one.slant])
        return one, before + "{}" + after

    def _look(self) -> Look:
        return Look(*(int(self._chance.integers(count)) for count in (10, 3, 3)))

    def _default_look(self) -> Look:
        """Where no style is asked for: mostly the ordinary one, else any, so that sampling gives variety."""
        weight, slant = (int(self._chance.choice(3, p=(0.15, 0.7, 0.15))) for _ in range(2))
        return Look(int(self._chance.integers(10)), weight, slant)

    def _article(self, text: str) -> str:
        """An 8, as most people write; not all do."""
        return text if self._chance.random() < 0.25 else ARTICLE.sub(r"\1n \2", text)

    def _name(self, digit: int) -> str:
        return str(digit) if self._chance.random() < 0.5 else say.DIGIT_WORDS[digit]

    def _beside(self, wordings: Sequence[str], pictures: int = 1) -> str:
        """A question with its pictures before it or after it."""
        gap = self._pick(BETWEEN)
        shown, question = gap.join([PICTURE_IN] * pictures), self._pick(wordings)
        if not question:
            return shown
        parts = [shown, question] if self._chance.random() < 0.6 else [question, shown]
        return gap.join(parts)

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._chance.integers(len(choices)))]


def _drawn(one: Look) -> str:
    return f"Here is your {one.digit}.{picture_out(one)}"  # no article: it would depend on the digit
