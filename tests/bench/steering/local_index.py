"""One gateway's picture of the pool in one process, with the meaning of the Redis index, for sweeps.

Rows are bit masks of workers by key. A row is real (an event said so) or promised (a decision will make it so; counted,
withdrawn at the end of the request that promised it: until then the worker cannot evict those blocks).
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

Key = int


class Reservation(msgspec.Struct, frozen=True):
    """What one decision has taken, until it is given back."""

    slot: int
    epoch: int
    uncached_tokens: int
    promised: Sequence[Key]
    family: Sequence[Key]


class LocalIndex:
    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.inflight = [0] * workers
        self.uncached_tokens = [0] * workers
        self._own = [0] * workers  # of `inflight`, those dispatched from here
        self._epochs = [0] * workers
        self._rows: dict[Key, int] = {}
        self._held: list[set[Key]] = [set() for _ in range(workers)]
        self._promises: list[dict[Key, int]] = [{} for _ in range(workers)]
        self._families: list[defaultdict[Key, int]] = [defaultdict(int) for _ in range(workers)]

    def stored(self, slot: int, keys: Sequence[Key]) -> None:
        self._held[slot].update(keys)
        self._set(slot, keys)

    def removed(self, slot: int, keys: Sequence[Key]) -> None:
        promises = self._promises[slot]
        self._held[slot].difference_update(keys)
        self._clear(slot, [key for key in keys if key not in promises])

    def forget(self, slot: int) -> None:
        """A worker's life is over: neither its rows nor its reservations count any more."""
        self._clear(slot, [*self._held[slot], *self._promises[slot]])
        self._held[slot].clear()
        self._promises[slot].clear()
        self._families[slot].clear()
        self._epochs[slot] += 1
        self.inflight[slot] = self.uncached_tokens[slot] = self._own[slot] = 0

    def report(self, slot: int, inflight: int, uncached_tokens: int) -> None:
        """The worker's own count, which includes what other gateways sent; own decisions are added from here on."""
        self.inflight[slot] = inflight
        self.uncached_tokens[slot] = uncached_tokens

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
        """Requests in flight there that share the prompt's key at the largest power of two within `depth`.

        Scaled from own requests to all where other gateways send there too.
        """
        own = self._own[slot]
        if not depth or not own:
            return 0
        count = self._families[slot].get(keys[(1 << depth.bit_length() - 1) - 1], 0)
        return round(count * self.inflight[slot] / own)

    def reserve(self, slot: int, keys: Sequence[Key], matched: int, uncached_tokens: int) -> Reservation:
        self.inflight[slot] += 1
        self._own[slot] += 1
        self.uncached_tokens[slot] += uncached_tokens
        promised, promises = keys[matched:], self._promises[slot]
        for key in promised:
            promises[key] = promises.get(key, 0) + 1
        self._set(slot, promised)
        family = [keys[(1 << power) - 1] for power in range(len(keys).bit_length())]
        for key in family:
            self._families[slot][key] += 1
        return Reservation(slot, self._epochs[slot], uncached_tokens, promised, family)

    def first_token(self, reservation: Reservation) -> None:
        slot = reservation.slot
        if reservation.epoch == self._epochs[slot]:
            self.uncached_tokens[slot] = max(0, self.uncached_tokens[slot] - reservation.uncached_tokens)

    def end(self, reservation: Reservation) -> None:
        slot = reservation.slot
        if reservation.epoch != self._epochs[slot]:
            return
        self.inflight[slot] = max(0, self.inflight[slot] - 1)
        self._own[slot] -= 1
        _release(self._families[slot], reservation.family)
        broken = _release(self._promises[slot], reservation.promised)
        held = self._held[slot]
        self._clear(slot, [key for key in broken if key not in held])

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


def _release(counts: dict[Key, int], keys: Sequence[Key]) -> list[Key]:
    """Count down; returns the keys nobody counts any more."""
    gone = []
    for key in keys:
        if counts[key] > 1:
            counts[key] -= 1
        else:
            del counts[key]
            gone.append(key)
    return gone
