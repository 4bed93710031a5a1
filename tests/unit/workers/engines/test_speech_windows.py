import numpy as np
import pytest

from workers.engines import speech_windows
from workers.engines.speech_windows import SAMPLE_RATE, Span, packed


@pytest.mark.parametrize(
    ("speech", "spans"),
    [
        ([], []),
        ([(0, 4), (6, 9)], [(0, 9)]),  # joined with the pause between
        ([(0, 4), (6, 11)], [(0, 4), (6, 11)]),  # eleven do not fit into ten
        ([(3, 12), (12, 14)], [(3, 12), (12, 14)]),
        ([(0, 25)], [(0, 10), (10, 20), (20, 25)]),  # nobody breathes that long
        ([(0, 12), (13, 15)], [(0, 10), (10, 15)]),
    ],
)
def test_stretches_of_speech_are_packed_into_windows(speech: list[Span], spans: list[Span]) -> None:
    assert packed(speech, 10) == spans


def test_a_window_knows_whose_it_is_and_when_it_begins() -> None:
    pcm = np.arange(40 * SAMPLE_RATE, dtype=np.float32)
    first, second = speech_windows.cut(3, pcm, lambda _: [(0, 5 * SAMPLE_RATE), (20 * SAMPLE_RATE, 38 * SAMPLE_RATE)])
    assert (first.item, first.start_s, first.length_s) == (3, 0.0, 5.0)
    assert (second.start_s, second.length_s, second.pcm[0]) == (20.0, 18.0, 20 * SAMPLE_RATE)


def test_a_sound_without_samples_has_no_window_and_is_not_even_looked_at() -> None:
    def find(_: object) -> list[Span]:
        raise AssertionError("nothing to look at")

    assert speech_windows.cut(0, np.zeros(0, np.float32), find) == []
