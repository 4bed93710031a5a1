from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from workers.decoder import CannotDecode, Spoken
from workers.engines.hibari import PIECE_CHARS, HibariEngine, pieces


class Speaker:
    """Says one sample for each letter of the Latin alphabet and fails at "?!"."""

    sample_rate = 24_000

    def __init__(self) -> None:
        self.said: list[str] = []

    def split_sentences(self, text: str) -> list[str]:
        return [one.strip() for one in text.split(".") if one.strip()]

    def stream(self, text: str, speed: float, seed: int) -> Iterator[Any]:
        if "?!" in text:
            raise IndexError("list index out of range")
        self.said.append(text)
        letters = sum(char.isascii() and char.isalnum() for char in text)
        yield np.ones(round(letters / speed), np.float32)


@pytest.fixture
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture
def engine(speaker: Speaker) -> HibariEngine:
    made = HibariEngine(("heart", "wren"))
    made._speakers = {"heart": speaker, "wren": Speaker()}
    return made


def spoken(engine: HibariEngine, text: str, voice: str = "", speed: float = 1.0) -> list[Spoken]:
    return list(engine.speak(text, voice, speed))


def test_each_sentence_comes_for_itself_as_soon_as_it_is_ready(engine: HibariEngine, speaker: Speaker) -> None:
    sentences = engine.speak("One here. Two.", "", 1.0)
    assert next(sentences).text == "One here" and speaker.said == ["One here"]
    assert [one.text for one in sentences] == ["Two"]


def test_twice_the_speed_is_half_the_time(engine: HibariEngine) -> None:
    assert [one.pcm.size for one in spoken(engine, "abcd", speed=2.0)] == [2]


def test_the_first_voice_is_the_default_and_an_unknown_one_is_refused_with_the_known_ones(
    engine: HibariEngine, speaker: Speaker
) -> None:
    spoken(engine, "hi", "wren")
    assert speaker.said == []
    with pytest.raises(CannotDecode, match="no voice 'alloy'; there are: heart, wren"):
        spoken(engine, "hi", "alloy")


@pytest.mark.parametrize("text", ["", "  \n", "😀!", "...", "안녕하세요"])
def test_where_nothing_can_be_said_that_is_said(engine: HibariEngine, text: str) -> None:
    with pytest.raises(CannotDecode, match="nothing in this text that can be spoken"):
        spoken(engine, text)


def test_what_has_no_english_reading_is_left_out(engine: HibariEngine) -> None:
    assert [one.text for one in spoken(engine, "안녕. Hello 😀. ?")] == ["Hello 😀"]


def test_a_number_too_long_for_a_name_is_said_digit_by_digit(engine: HibariEngine, speaker: Speaker) -> None:
    (one,) = spoken(engine, f"call {'12' * 10} now 1234")
    assert speaker.said == [f"call {' '.join('12' * 10)} now 1234"] and one.text == f"call {'12' * 10} now 1234"


def test_a_hole_in_the_dictionary_is_told_and_does_not_crash(engine: HibariEngine) -> None:
    with pytest.raises(CannotDecode, match=r"cannot be spoken: 'what\?!'"):
        spoken(engine, "what?!")


@pytest.mark.parametrize(
    "sentence", ["word " * 200, "clause one, " * 60, "x" * 1000, "short", f"{'a' * 100}, {'b' * 239} {'c' * 300}"]
)
def test_long_sentences_are_cut_into_pieces_and_no_letter_is_lost(sentence: str) -> None:
    found = list(pieces(sentence))
    assert max(map(len, found)) <= PIECE_CHARS
    assert "".join("".join(found).split()) == "".join(sentence.split())


def test_a_long_sentence_is_cut_between_clauses_first() -> None:
    found = list(pieces("clause one, " * 60))
    assert all(piece.endswith(",") for piece in found)
