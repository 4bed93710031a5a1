"""The index and the ledger of reservations in one process, with the meaning of the Redis ones, for sweeps.

Rows are bit masks of workers by key. A row is real (an event said so) or speculative (a decision promised it; counted,
withdrawn at the first token of the request that promised it unless an event has confirmed it).
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

Key = int


class Reservation(msgspec.Struct):
    """What one decision has taken, until it is given back."""

    slot: int
    uncached_tokens: int
    promised: Sequence[Key]
    family: Sequence[Key]


class LocalIndex:
    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.inflight = [0] * workers
        self.uncached_tokens = [0] * workers
        self._rows: dict[Key, int] = {}
        self._held: list[set[Key]] = [set() for _ in range(workers)]
        self._promises: list[dict[Key, int]] = [{} for _ in range(workers)]
        self._families: list[defaultdict[Key, int]] = [defaultdict(int) for _ in range(workers)]

    def stored(self, slot: int, keys: Sequence[Key]) -> None:
        self._held[slot].update(keys)
        self._set(slot, keys)

    def removed(self, slot: int, keys: Sequence[Key]) -> None:
        held, promises = self._held[slot], self._promises[slot]
        held.difference_update(keys)
        self._clear(slot, [key for key in keys if key not in promises])

    def forget(self, slot: int) -> None:
        """A worker's life is over: neither its rows nor its reservations count any more."""
        self._clear(slot, list(self._held[slot]) + list(self._promises[slot]))
        self._held[slot].clear()
        self._promises[slot].clear()
        self._families[slot].clear()
        self.inflight[slot] = self.uncached_tokens[slot] = 0

    def held(self, slot: int) -> int:
        return len(self._held[slot])

    def depths(self, keys: Sequence[Key]) -> list[int]:
        """Longest contiguous prefix of every worker, in blocks."""
        rows, alive = self._rows, (1 << self.workers) - 1
        depths = [len(keys)] * self.workers
        for depth, key in enumerate(keys):
            still = alive & rows.get(key, 0)
            if still != alive:
                gone = alive ^ still
                for slot in range(self.workers):
                    if gone >> slot & 1:
                        depths[slot] = depth
                alive = still
                if not alive:
                    break
        return depths

    def family_inflight(self, slot: int, keys: Sequence[Key], depth: int) -> int:
        """Requests in flight there that share the prompt's key at the largest power of two within `depth`."""
        return self._families[slot].get(keys[(1 << depth.bit_length() - 1) - 1], 0) if depth else 0

    def reserve(self, slot: int, keys: Sequence[Key], matched: int, uncached_tokens: int) -> Reservation:
        self.inflight[slot] += 1
        self.uncached_tokens[slot] += uncached_tokens
        promised, promises = keys[matched:], self._promises[slot]
        for key in promised:
            promises[key] = promises.get(key, 0) + 1
        self._set(slot, promised)
        family = [keys[(1 << power) - 1] for power in range(len(keys).bit_length())]
        for key in family:
            self._families[slot][key] += 1
        return Reservation(slot, uncached_tokens, promised, family)

    def first_token(self, reservation: Reservation) -> None:
        slot = reservation.slot
        self.uncached_tokens[slot] -= reservation.uncached_tokens
        promises, held, broken = self._promises[slot], self._held[slot], []
        for key in reservation.promised:
            if promises[key] > 1:
                promises[key] -= 1
            else:
                del promises[key]
                if key not in held:
                    broken.append(key)
        self._clear(slot, broken)

    def end(self, reservation: Reservation) -> None:
        families = self._families[reservation.slot]
        self.inflight[reservation.slot] -= 1
        for key in reservation.family:
            if families[key] > 1:
                families[key] -= 1
            else:
                del families[key]

    def _set(self, slot: int, keys: Sequence[Key]) -> None:
        rows, bit = self._rows, 1 << slot
        for key in keys:
            rows[key] = rows.get(key, 0) | bit

    def _clear(self, slot: int, keys: Sequence[Key]) -> None:
        rows, mask = self._rows, ~(1 << slot)
        for key in keys:
            left = rows.get(key, 0) & mask
            if left:
                rows[key] = left
            else:
                rows.pop(key, None)
