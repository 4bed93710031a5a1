"""The paged prefix cache of a simulated worker: reference counts, LRU of what nobody references, KV events.

A block is in one of four states: blank (holds nothing), private (held by one sequence, no key yet), keyed and
referenced, keyed and idle. Idle blocks are evicted oldest first; a sequence gives its blocks back tail first, so
that the shared head of a prompt outlives its tail. This is how vLLM's block pool behaves.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Protocol

Key = Hashable


class CacheListener(Protocol):
    """Told of every change, in order; `parent` is None for the first block of a prompt."""

    def stored(self, keys: Sequence[Key], parent: Key | None) -> None: ...

    def removed(self, keys: Sequence[Key]) -> None: ...

    def cleared(self) -> None: ...


class SimCache:
    """Counts blocks; knows nothing of time or of sequences."""

    def __init__(self, blocks: int, listener: CacheListener) -> None:
        self.blocks = blocks
        self.blank = blocks
        self._references: dict[Key, int] = {}
        self._idle: OrderedDict[Key, None] = OrderedDict()
        self._listener = listener

    @property
    def available(self) -> int:
        """Blocks that a sequence could take now: blank, or idle and evictable."""
        return self.blank + len(self._idle)

    @property
    def referenced(self) -> int:
        """Blocks that running sequences hold; the rest is free in the eyes of the engine's gauge."""
        return self.blocks - self.blank - len(self._idle)

    def match(self, keys: Sequence[Key], limit: int) -> int:
        """How many leading blocks are here, at most `limit`."""
        references, depth = self._references, 0
        for key in keys:
            if depth == limit or key not in references:
                break
            depth += 1
        return depth

    def idle_among(self, keys: Sequence[Key]) -> int:
        """Of these held blocks, how many stop being evictable when they are acquired."""
        references = self._references
        return sum(1 for key in keys if not references[key])

    def acquire(self, keys: Sequence[Key]) -> None:
        """Reference blocks that are here."""
        references, idle = self._references, self._idle
        for key in keys:
            count = references[key]
            if not count:
                del idle[key]
            references[key] = count + 1

    def take(self, count: int) -> None:
        """Turn `count` available blocks into private ones, evicting the longest idle when blank ones run out."""
        spare = min(count, self.blank)
        self.blank -= spare
        if spare == count:
            return
        evicted = [self._idle.popitem(last=False)[0] for _ in range(count - spare)]
        for key in evicted:
            del self._references[key]
        self._listener.removed(evicted)

    def publish(self, keys: Sequence[Key], start: int, stop: int) -> Sequence[Key]:
        """Give private blocks start..stop of a chain their keys; returns those keys.

        Where a key is here already, the sequence goes on with that block and its own becomes blank. (vLLM keeps both
        until one is evicted; two sequences computing the same block at once is rare enough.)
        """
        span = keys[start:stop]
        fresh = [key for key in span if key not in self._references]
        if len(fresh) < len(span):
            self.acquire([key for key in span if key in self._references])
            self.blank += len(span) - len(fresh)
        if fresh:
            for key in fresh:
                self._references[key] = 1
            first = start + len(span) - len(fresh)  # what is here is always the head of the span
            self._listener.stored(fresh, keys[first - 1] if first else None)
        return span

    def release(self, keys: Sequence[Key], private: int) -> None:
        """Give back keyed blocks (tail first) and private ones, which become blank."""
        references, idle = self._references, self._idle
        for key in reversed(keys):
            count = references[key] - 1
            references[key] = count
            if not count:
                idle[key] = None
        self.blank += private

    def clear(self) -> None:
        """Forget everything, as a restarted engine has."""
        self._references.clear()
        self._idle.clear()
        self.blank = self.blocks
        self._listener.cleared()
