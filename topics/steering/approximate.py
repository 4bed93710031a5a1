"""The record of own decisions: what a worker probably holds when its own word cannot be had.

An LRU of block keys per worker, as large as its cache. It does not hear of evictions: that makes it approximate.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class OwnDecisions:
    """Bounded by `blocks` keys per worker."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._placed: dict[str, OrderedDict[Hashable, None]] = {}

    def record(self, worker: str, keys: Sequence[Hashable]) -> None:
        """A prompt was sent there. Its head is the last to be forgotten."""
        placed = self._placed.setdefault(worker, OrderedDict())
        for key in reversed(keys):
            placed[key] = None
            placed.move_to_end(key)
        while len(placed) > self._blocks:
            placed.popitem(last=False)

    def matched_blocks(self, worker: str, keys: Sequence[Hashable]) -> int:
        """Leading blocks that were sent there before."""
        placed = self._placed.get(worker)
        if not placed:
            return 0
        return next((depth for depth, key in enumerate(keys) if key not in placed), len(keys))

    def forget(self, worker: str) -> None:
        """Its life is over."""
        self._placed.pop(worker, None)
