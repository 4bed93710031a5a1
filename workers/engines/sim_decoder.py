"""Decoders without a model: they take the time that one would, and make what a test can recognise.

A picture has the flat colour of its codes, below a bar that shows how far a step counter got; a sentence is a tone
whose pitch is its text's. Every figure taken with them must say so; their name is shown with them.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from schemas.jobs import DecodeJob
from schemas.media import ImageOptions
from workers.decoder import CannotDecode, Drawn, Spoken, Stopped

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE_RATE = 24_000
TONE_S = 0.2
BAR_SHARE = 8  # the bar takes one of so many parts of the height


def colour_of(codes: Sequence[int], seed: int | None) -> tuple[int, int, int]:
    """The same for the same codes and seed, and unlike that of others."""
    raw = hashlib.sha256(repr((list(codes), seed)).encode()).digest()
    return raw[0], raw[1], raw[2]


class SimPainter:
    """Implements PictureEngine; a step takes `step_s` whatever the batch. A negative code cannot be decoded."""

    name = "sim"

    def __init__(self, batch: int = 4, step_s: float = 0.02) -> None:
        self.batch = batch
        self._step_s = step_s
        self._pause = threading.Event()

    def load(self, report: Callable[[str], None]) -> None:
        report("sim decoder: no model is loaded")

    def draw(
        self, jobs: Sequence[DecodeJob], report: Callable[[int, int], None], stopped: Callable[[], bool]
    ) -> list[Drawn | CannotDecode]:
        options = [_options(job) for job in jobs]
        steps = options[0].steps
        for done in range(1, steps + 1):
            if stopped():
                raise Stopped
            self._pause.wait(self._step_s)
            report(done, steps)
        return [_picture(job, one) for job, one in zip(jobs, options, strict=True)]


class SimSpeaker:
    """Implements SpeechEngine; a sentence takes `sentence_s`."""

    name = "sim"

    def __init__(self, voices: tuple[str, ...] = ("sim",), sentence_s: float = 0.05) -> None:
        self.voices = voices or ("sim",)
        self._sentence_s = sentence_s
        self._pause = threading.Event()

    def load(self, report: Callable[[str], None]) -> None:
        report("sim decoder: no model is loaded")

    def speak(self, text: str, voice: str, speed: float) -> Iterator[Spoken]:
        if not text.strip():
            raise CannotDecode("there is nothing to say")
        self._pause.wait(self._sentence_s)
        yield Spoken(_tone(text, TONE_S / speed), SAMPLE_RATE, text)


def _options(job: DecodeJob) -> ImageOptions:
    assert isinstance(job.options, ImageOptions)  # the pool has looked
    return job.options


def _picture(job: DecodeJob, options: ImageOptions) -> Drawn | CannotDecode:
    if any(code < 0 for code in job.codes):
        return CannotDecode("a code is out of range")
    rgb = np.empty((options.height, options.width, 3), np.uint8)
    rgb[:] = colour_of(job.codes, options.seed)
    rgb[: options.height // BAR_SHARE, : options.width * min(options.steps, 100) // 100] = 0
    return Drawn(rgb)


def _tone(text: str, seconds: float) -> "NDArray[np.float32]":
    pitch = 200 + hashlib.sha256(text.encode()).digest()[0] * 4
    at = np.arange(int(SAMPLE_RATE * seconds)) / SAMPLE_RATE
    return (0.3 * np.sin(2 * np.pi * pitch * at)).astype(np.float32)
