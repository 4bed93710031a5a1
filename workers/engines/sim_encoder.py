"""An encoder that only takes time: for measuring the pipeline around encoders. Figures of it are labelled "sim"."""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.media import ArtifactKind
from workers.encoder import Clip, Decoded, Encoded, MediaFault, Picture, Sound

ROWS = 16


class SimEncoder:
    """Implements EncoderEngine. Every item takes `item_s`, one after the other, as on a device that a single one fills.

    What it yields is drawn from the digest of the item: equal items, equal artifacts.
    """

    def __init__(self, yields: ArtifactKind, item_s: float, *, width: int = 576, batch: int = 4) -> None:
        self._yields = yields
        self._item_s = item_s
        self._width = width
        self.batch = batch

    def load(self, report: Callable[[str], None]) -> None:
        report("sim encoder: nothing to load")

    def encode(self, items: Sequence[Decoded]) -> list[Encoded | MediaFault]:
        time.sleep(self._item_s * len(items))
        return [self._encoded(item) for item in items]

    def _encoded(self, item: Decoded) -> Encoded:
        digest = _digest(item)
        match self._yields:
            case "embeddings":
                seed = int.from_bytes(digest[:8], "little")
                rows = np.random.default_rng(seed).standard_normal((ROWS, self._width), dtype=np.float32)
                return Encoded("embeddings", embeddings=rows)
            case "token_ids":
                return Encoded("token_ids", token_ids=[1_000 + byte for byte in digest[:ROWS]])
            case "text":
                return Encoded("text", text=f"[sim {digest.hex()[:16]}]")


def _digest(item: Decoded) -> bytes:
    parts: list[NDArray[Any]]
    match item:
        case Picture():
            parts = [item.rgb]
        case Sound():
            parts = [item.pcm]
        case Clip():
            parts = [frame.rgb for frame in item.frames]
    found = hashlib.sha256()
    for part in parts:
        found.update(repr(part.shape).encode() + part.tobytes())
    return found.digest()
