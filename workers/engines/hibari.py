"""Text to English speech: hibari's voices, in numpy and onnxruntime, on one CPU thread."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from infra.model_files import ModelMissing
from workers.decoder import CannotDecode, Spoken

PIECE_CHARS = 240  # about 15 s of speech; what is longer is cut, so that the first sound is never far away
_CLAUSE = re.compile(r"(?<=[,;:—])\s+")
_LONG_NUMBER = re.compile(r"\d{16,}")  # nobody says it as one number, and the reader of numbers knows no name for it
SEED = 0  # of the noise in consonants: the same text sounds the same


class HibariEngine:
    """Voices whose weights lie inside the package; what would be downloaded is not offered."""

    def __init__(self, voices: tuple[str, ...]) -> None:
        self.voices = voices
        self._speakers: dict[str, Any] = {}

    def load(self, report: Callable[[str], None]) -> None:
        """Raises ModelMissing: the package, or a voice, is not there."""
        try:
            from hibari import Hibari
            from hibari.voices import VOICES
        except ModuleNotFoundError as error:
            raise ModelMissing(f"{error.name} is not installed; speech needs the extra `cpu` or `gpu`") from error
        there = [name for name, about in VOICES.items() if about.get("bundled")]
        for name in self.voices:
            if name not in there:
                raise ModelMissing(f"voice {name!r} is not in the package hibari-tts; it has {', '.join(there)}")
            report(f"loading voice {name}")
            self._speakers[name] = Hibari(voice=name, threads=1)
            self._say(self._speakers[name], "Ready.", 1.0)  # loads the dictionaries

    def speak(self, text: str, voice: str, speed: float) -> Iterator[Spoken]:
        """Sentence by sentence; `speed` is the factor of the pace. What has no English reading is left out.

        Raises:
            CannotDecode: there is nothing to say, or no such voice.
        """
        speaker = self._speakers.get(voice or self.voices[0])
        if speaker is None:
            raise CannotDecode(f"there is no voice {voice!r}; there are: {', '.join(self.voices)}")
        silent = True
        for sentence in speaker.split_sentences(text):
            for piece in pieces(sentence):
                pcm = self._say(speaker, piece, speed)
                if pcm.size:
                    silent = False
                    yield Spoken(pcm, speaker.sample_rate, piece)
        if silent:
            raise CannotDecode("there is nothing in this text that can be spoken; the voices speak English")

    def _say(self, speaker: Any, piece: str, speed: float) -> "np.ndarray[Any, np.dtype[np.float32]]":
        readable = _LONG_NUMBER.sub(lambda number: " ".join(number[0]), piece)
        if not any(char.isalnum() for char in readable):
            return np.zeros(0, np.float32)
        try:
            parts = list(speaker.stream(readable, speed, SEED))
        except (LookupError, ValueError, ArithmeticError) as error:  # its dictionaries and rules for numbers have gaps
            raise CannotDecode(f"this cannot be spoken: {piece[:80]!r}") from error
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def pieces(sentence: str) -> Iterator[str]:
    """A sentence in parts of at most PIECE_CHARS: cut between clauses, else between words, else anywhere."""
    current = ""
    for part in _parts(sentence):
        if current and len(current) + 1 + len(part) > PIECE_CHARS:
            yield current
            current = part
        else:
            current = f"{current} {part}".strip()
    if current:
        yield current


def _parts(sentence: str) -> Iterator[str]:
    if len(sentence) <= PIECE_CHARS:
        yield sentence
        return
    for clause in _CLAUSE.split(sentence):
        if len(clause) <= PIECE_CHARS:
            yield clause
            continue
        for word in clause.split():
            yield from (word[at : at + PIECE_CHARS] for at in range(0, len(word), PIECE_CHARS))
