"""From a sound to the stretches that a recogniser hears: at most 30 seconds each, cut where nobody speaks."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

SAMPLE_RATE = 16_000
WINDOW_S = 30.0
MIN_SPEECH_S = 0.1
MIN_SILENCE_S = 0.16  # a pause between two phrases; shorter ones are within a word
PAD_S = 0.4  # kept around speech: consonants at its ends are quiet

Pcm = np.ndarray[Any, np.dtype[np.float32]]
Span = tuple[int, int]  # samples: from, up to


class Window(msgspec.Struct, frozen=True):
    """A stretch of one item's sound."""

    item: int
    start_s: float
    pcm: Pcm

    @property
    def length_s(self) -> float:
        return len(self.pcm) / SAMPLE_RATE


def cut(item: int, pcm: Pcm, find_speech: Callable[[Pcm], list[Span]]) -> list[Window]:
    """The windows of one sound, in order; none when nobody speaks."""
    if not pcm.size:
        return []
    spans = packed(find_speech(pcm), round(WINDOW_S * SAMPLE_RATE))
    return [Window(item, start / SAMPLE_RATE, pcm[start:end]) for start, end in spans]


def packed(speech: Iterable[Span], limit: int) -> list[Span]:
    """Neighbouring stretches of speech joined, with the pauses between them, as long as they fit into `limit` samples.

    A single stretch over the limit is cut hard.
    """
    spans: list[Span] = []
    for start, end in speech:
        if spans and end - spans[-1][0] <= limit:
            spans[-1] = (spans[-1][0], end)
            continue
        spans += [(at, min(at + limit, end)) for at in range(start, end, limit)]
    return spans


def silero(pcm: Pcm) -> list[Span]:
    """Where somebody speaks, by the voice detector whose weights lie inside faster-whisper."""
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    options = VadOptions(
        min_speech_duration_ms=round(MIN_SPEECH_S * 1000),
        min_silence_duration_ms=round(MIN_SILENCE_S * 1000),
        speech_pad_ms=round(PAD_S * 1000),
        max_speech_duration_s=WINDOW_S,
    )
    found = get_speech_timestamps(pcm, options, sampling_rate=SAMPLE_RATE)
    return [(one["start"], one["end"]) for one in found]
