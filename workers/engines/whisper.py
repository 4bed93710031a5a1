"""Speech to text: Whisper by CTranslate2, on one CPU thread.

Sounds of a batch go through the network together, window by window: first everybody's first window, then the second
ones. Decoding is greedy; 8-bit products are exact, so what else is in a batch changes nothing. Nobody speaking gives no
text: a voice detector chooses what is heard at all, and what the model itself takes for no speech is dropped.
"""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infra.model_files import ModelMissing
from schemas.media import Segment
from workers.encoder import Decoded, Encoded, MediaFault, Sound
from workers.engines import speech_windows
from workers.engines.speech_windows import SAMPLE_RATE, Window

BATCH = 4
# OpenAI's own thresholds: surely no speech, and a text as repetitive as the model's loops are.
NO_SPEECH, UNSURE, REPETITIVE = 0.6, -1.0, 2.4
MAX_TOKENS = 448  # of the decoder: prompt and text
TOKEN_S = 0.02  # one time stamp
FRAMES = 3000  # a window of 30 s, as the encoder wants it


class WhisperEngine:
    """Text, its segments, language and duration, of sounds."""

    batch = BATCH

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._model: Any = None
        self._languages: frozenset[str] = frozenset()

    def load(self, report: Callable[[str], None]) -> None:
        """Raises ModelMissing: the folder or the library is not there."""
        if not (self._weights / "model.bin").is_file():
            raise ModelMissing(f"{self._weights} has no model.bin; fetch it with `triptych models pull`")
        try:
            from faster_whisper import WhisperModel
        except ModuleNotFoundError as error:
            raise ModelMissing(f"{error.name} is not installed; Whisper needs the extra `cpu` or `gpu`") from error

        report("loading Whisper")
        self._model = WhisperModel(str(self._weights), device="cpu", compute_type="int8", cpu_threads=1)
        token_of = self._model.hf_tokenizer.token_to_id
        # The library lists languages of later models as well.
        self._languages = frozenset(
            one for one in self._model.supported_languages if token_of(f"<|{one}|>") is not None
        )
        report("warming up")
        self._hear([Window(0, 0.0, np.zeros(SAMPLE_RATE, np.float32))], {0: "en"})

    def encode(self, items: Sequence[Decoded]) -> list[Encoded | MediaFault]:
        faults: dict[int, MediaFault] = {}
        spoken: dict[int, str] = {}
        waiting: list[list[Window]] = []
        for number, item in enumerate(items):
            fault = self._fault(item)
            if fault or not isinstance(item, Sound):
                faults[number] = fault or MediaFault("media_type_unsupported", "this model hears sounds only")
                continue
            spoken[number] = item.language.lower()
            waiting.append(speech_windows.cut(number, item.pcm, speech_windows.silero))
        heard: dict[int, list[Segment]] = {number: [] for number in spoken}
        for window, segments in self._rounds(waiting, spoken):
            heard[window.item] += segments
        return [
            faults[number] if number in faults else _encoded(item, heard[number], spoken[number])
            for number, item in enumerate(items)
        ]

    def _fault(self, item: Decoded) -> MediaFault | None:
        if isinstance(item, Sound) and item.language and item.language.lower() not in self._languages:
            known = ", ".join(sorted(self._languages))
            return MediaFault("invalid_request", f"language {item.language!r} is none of {known}")
        return None

    def _rounds(self, waiting: list[list[Window]], spoken: dict[int, str]) -> list[tuple[Window, list[Segment]]]:
        """Every window with what is said in it; `spoken` learns the languages that nobody gave."""
        heard: list[tuple[Window, list[Segment]]] = []
        for turn in range(max(map(len, waiting), default=0)):
            windows = [one[turn] for one in waiting if turn < len(one)]
            heard += zip(windows, self._hear(windows, spoken), strict=True)
        return heard

    def _hear(self, windows: Sequence[Window], spoken: dict[int, str]) -> list[list[Segment]]:
        """One forward of the encoder for all windows, and one decoding."""
        from faster_whisper.audio import pad_or_trim
        from faster_whisper.tokenizer import Tokenizer

        listen, model = self._model.feature_extractor, self._model.model
        encoded = self._model.encode(np.stack([pad_or_trim(listen(one.pcm), FRAMES) for one in windows]))
        if not all(spoken[one.item] for one in windows):
            for one, likeliest in zip(windows, model.detect_language(encoded), strict=True):
                spoken[one.item] = spoken[one.item] or likeliest[0][0].strip("<|>")
        tokenizers = [Tokenizer(self._model.hf_tokenizer, True, "transcribe", spoken[one.item]) for one in windows]
        results = model.generate(
            encoded,
            [list(one.sot_sequence) for one in tokenizers],
            beam_size=1,
            max_length=MAX_TOKENS,
            return_scores=True,
            return_no_speech_prob=True,
        )
        return [
            segments(one, result.sequences_ids[0], tokenizer)
            if is_speech(result.no_speech_prob, result.scores[0], tokenizer.decode(result.sequences_ids[0]))
            else []
            for one, tokenizer, result in zip(windows, tokenizers, results, strict=True)
        ]


def is_speech(no_speech: float, mean_logprob: float, text: str) -> bool:
    """Whether a window's text was heard rather than made up."""
    raw = text.encode()
    loops = len(raw) > REPETITIVE * len(zlib.compress(raw)) and mean_logprob < UNSURE / 2
    return bool(raw.strip()) and not loops and not (no_speech > NO_SPEECH and mean_logprob < UNSURE)


def segments(window: Window, tokens: Sequence[int], tokenizer: Any) -> list[Segment]:
    """A window's tokens cut at its time stamps, which are tokens as well; times count from the start of the sound."""
    found: list[Segment] = []
    start_s, words = 0.0, list[int]()

    def close(end_s: float) -> None:
        text = tokenizer.decode(words).strip()
        if text:
            first, last = (round(window.start_s + min(at, window.length_s), 2) for at in (start_s, end_s))
            found.append(Segment(first, max(first, last), text))
        words.clear()

    for token in tokens:
        if token < tokenizer.timestamp_begin:
            words.append(token)
            continue
        at_s = (token - tokenizer.timestamp_begin) * TOKEN_S
        close(at_s)
        start_s = at_s
    close(window.length_s)
    return found


def _encoded(item: Decoded, heard: list[Segment], language: str) -> Encoded:
    assert isinstance(item, Sound)  # others have their fault
    return Encoded(
        "text",
        text=" ".join(one.text for one in heard),
        segments=heard,
        language=language if heard else item.language.lower(),
        duration_s=round(len(item.pcm) / SAMPLE_RATE, 3),
    )
