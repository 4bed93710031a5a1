"""The eyes and the brush of triptych-omni-tiny, as encoder and decoder pools know them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infra.model_files import ModelMissing
from schemas.jobs import DecodeJob
from schemas.media import ImageOptions
from workers.decoder import CannotDecode, Drawn, Stopped
from workers.encoder import Decoded, Encoded, MediaFault, frames_of
from workers.engines.omni_tiny.codes import WrongCodes, look
from workers.engines.omni_tiny.dit import DigitsDit, DrawAsk, DrawingStopped
from workers.engines.omni_tiny.vision import DigitsVision

BATCH = 16
MAX_GUIDANCE = 20  # as in dit.py
BLANK = np.zeros((8, 8, 3), np.uint8)


class DigitsEncoder:
    """Rows of embeddings for each picture; those of a clip are its frames', one after the other."""

    batch = BATCH

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._model: Any = None

    def load(self, report: Callable[[str], None]) -> None:
        """Raises ModelMissing: the weights are not there."""
        report("loading the digits' eyes")
        self._model = _loaded(DigitsVision, self._weights)
        self._model.encode([BLANK])

    def encode(self, items: Sequence[Decoded]) -> list[Encoded | MediaFault]:
        """One forward for the pictures of all items."""
        frames = [frames_of(item) for item in items]
        rows = iter(self._model.encode([one for several in frames for one in several]))
        return [self._encoded([next(rows) for _ in several]) for several in frames]

    def _encoded(self, rows: list[Any]) -> Encoded | MediaFault:
        if not rows:
            return MediaFault("media_type_unsupported", "this model sees pictures only")
        return Encoded("embeddings", embeddings=np.concatenate(rows).astype(np.float32))


class DigitsPainter:
    """Pictures of digits from codes, in as many steps as are asked for."""

    batch = BATCH

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._model: Any = None

    def load(self, report: Callable[[str], None]) -> None:
        """Raises ModelMissing: the weights are not there."""
        report("loading the digits' brush")
        self._model = _loaded(DigitsDit, self._weights)

    def draw(
        self, jobs: Sequence[DecodeJob], report: Callable[[int, int], None], stopped: Callable[[], bool]
    ) -> list[Drawn | CannotDecode]:
        """Jobs of one number of steps share their forwards. A job without a picture in its codes fails alone."""
        asks = [_ask(job) for job in jobs]
        good = [one for one in asks if isinstance(one, DrawAsk)]
        try:
            drawn = iter(self._model.draw(good, report, stopped) if good else [])
        except DrawingStopped as error:
            raise Stopped(str(error)) from error
        return [Drawn(next(drawn)) if isinstance(one, DrawAsk) else one for one in asks]


def _loaded(kind: Any, weights: Path) -> Any:
    torch.set_num_threads(1)  # stages share the cores, and these networks are too small for two
    try:
        return kind.load(weights)
    except (FileNotFoundError, RuntimeError) as error:
        raise ModelMissing(f"{weights}: {error}; `triptych train omni-tiny` makes these weights") from error


def _ask(job: DecodeJob) -> DrawAsk | CannotDecode:
    options = job.options
    if not isinstance(options, ImageOptions):
        return CannotDecode("this model draws pictures; it does not speak")
    if options.guidance > MAX_GUIDANCE:
        return CannotDecode(f"guidance is at most {MAX_GUIDANCE} for this model, not {options.guidance}")
    try:
        look(job.codes)
    except WrongCodes as error:
        return CannotDecode(str(error))
    return DrawAsk(job.codes, options.steps, options.guidance, options.seed, options.width, options.height)
