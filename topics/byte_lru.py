"""A memory of results by their input, bounded in bytes: what was not used for longest goes first."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# One entry may take this share of the memory: a larger one would push out everybody else's for a single use.
LARGEST_SHARE = 1 / 8
# The table's own, for each entry: its slot, its place in the order, the pair of value and size.
ENTRY_BYTES = 256


class ByteLru(Generic[K, V]):
    """Holds at most `most_bytes`. Keys and values must not change. Safe to use from several threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """`size_bytes`: of key and value together. One that is too large is not kept."""
        size_bytes += ENTRY_BYTES
        if size_bytes > self._most_bytes * LARGEST_SHARE:
            return
        with self._lock:
            if (before := self._held.pop(key, None)) is not None:
                self._held_bytes -= before[1]
            self._held[key] = (value, size_bytes)
            self._held_bytes += size_bytes
            while self._held_bytes > self._most_bytes:
                _, (_, freed_bytes) = self._held.popitem(last=False)
                self._held_bytes -= freed_bytes
