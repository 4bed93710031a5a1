from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from infra.model_files import ModelMissing
from schemas.media import Segment
from workers.engines import whisper
from workers.engines.speech_windows import SAMPLE_RATE, Window
from workers.engines.whisper import WhisperEngine, is_speech

STAMP = 1000  # the first time stamp's id: 0.00 s


class Letters:
    """A tokenizer whose ids are letters."""

    timestamp_begin = STAMP

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def at(seconds: float) -> int:
    return STAMP + round(seconds / whisper.TOKEN_S)


def window(start_s: float, length_s: float) -> Window:
    return Window(0, start_s, np.zeros(round(length_s * SAMPLE_RATE), np.float32))


def said(text: str) -> list[int]:
    return [ord(char) for char in text]


def test_tokens_are_cut_at_time_stamps_that_count_from_the_start_of_the_sound() -> None:
    tokens = [at(0), *said(" One."), at(1.5), at(2.0), *said(" Two."), at(3.0)]
    found = whisper.segments(window(10.0, 5.0), tokens, Letters())
    assert found == [Segment(10.0, 11.5, "One."), Segment(12.0, 13.0, "Two.")]


def test_an_end_that_is_not_told_is_the_end_of_the_window() -> None:
    assert whisper.segments(window(1.0, 4.0), [at(0), *said("On")], Letters()) == [Segment(1.0, 5.0, "On")]


def test_a_time_stamp_beyond_the_window_is_its_end() -> None:
    assert whisper.segments(window(0.0, 2.0), [at(0), *said("On"), at(29.0)], Letters()) == [Segment(0.0, 2.0, "On")]


def test_blanks_are_no_segment() -> None:
    assert whisper.segments(window(0.0, 2.0), [at(0), *said("  "), at(1.0), at(1.0), at(2.0)], Letters()) == []


@pytest.mark.parametrize(
    ("no_speech", "logprob", "text", "heard"),
    [
        (0.1, -0.2, "And so on.", True),
        (0.9, -0.2, "And so on.", True),  # the model is sure of the words
        (0.9, -1.5, "Thank you.", False),
        (0.1, -1.5, "Mumble mumble.", True),
        (0.1, -0.8, "you " * 40, False),  # a loop
        (0.1, -0.1, "no, " * 40, True),  # somebody really says so
        (0.0, 0.0, "  ", False),
    ],
)
def test_made_up_words_are_told_from_heard_ones(no_speech: float, logprob: float, text: str, heard: bool) -> None:
    assert is_speech(no_speech, logprob, text) is heard


def test_missing_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"model\.bin.*triptych models pull"):
        WhisperEngine(tmp_path).load(lambda line: None)
