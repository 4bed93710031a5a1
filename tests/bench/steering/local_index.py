"""The Redis index in one process, for sweeps: what `infra/prefix_index.py` answers, this answers. A property test holds
the two side by side (`tests/contracts/test_index_twin.py`): every field of every view, and every choice.

Rows are bit masks of workers by key. A row is real (an event said so) or promised (a decision will make it so; counted,
withdrawn at the end of the request that promised it: until then the worker cannot evict those blocks).

Beyond the real one it can be one of several that share no reservations (`recount`), and be told what is matched by a
record of decisions. It leaves out tickets that are asked for twice, feeds that fall silent, reservations that expire.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from schemas.steering import Ask, WorkerView

Key = int


class _Reservation(msgspec.Struct):
    """What one decision has taken, until it is given back."""

    slot: int
    life: int
    uncached_tokens: int  # 0 once given back
    promised: Sequence[Key]
    family: Sequence[Key]


class LocalIndex:
    """Workers are slots; views name them by their number."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.inflight = [0] * workers
        self.uncached_tokens = [0] * workers
        self._reports = [WorkerView(str(slot)) for slot in range(workers)]
        self._held_then = [0] * workers  # keys known when it reported
        self._own = [0] * workers  # of `inflight`, those dispatched from here
        self._lives = [0] * workers
        self._rows: dict[Key, int] = {}
        self._held: list[set[Key]] = [set() for _ in range(workers)]
        self._promises: list[dict[Key, int]] = [{} for _ in range(workers)]
        self._families: list[defaultdict[Key, int]] = [defaultdict(int) for _ in range(workers)]
        self._reservations: dict[str, _Reservation] = {}

    def retire(self, slot: int) -> None:
        """A worker's life is over: neither its rows nor its reservations count any more; the next one begins empty."""
        self._clear(slot, [*self._held[slot], *self._promises[slot]])
        self._held[slot].clear()
        self._promises[slot].clear()
        self._families[slot].clear()
        self._lives[slot] += 1
        self.inflight[slot] = self.uncached_tokens[slot] = self._own[slot] = self._held_then[slot] = 0

    def report(self, slot: int, view: WorkerView) -> None:
        """Gauges, memory and learned speed of a worker, with which its life also begins."""
        self._reports[slot] = view
        self._held_then[slot] = len(self._held[slot])

    def recount(self, slot: int, inflight: int, uncached_tokens: int) -> None:
        """The worker's own count, which includes what other gateways sent; own decisions are added from here on."""
        self.inflight[slot] = inflight
        self.uncached_tokens[slot] = uncached_tokens

    def stored(self, slot: int, keys: Sequence[Key]) -> None:
        self._held[slot].update(keys)
        self._set(slot, keys)

    def removed(self, slot: int, keys: Sequence[Key]) -> None:
        promises = self._promises[slot]
        self._held[slot].difference_update(keys)
        self._clear(slot, [key for key in keys if key not in promises])

    def cleared(self, slot: int) -> None:
        self.removed(slot, list(self._held[slot]))

    def look(self, keys: Sequence[Key], slots: Sequence[int], depths: Sequence[int] | None = None) -> list[WorkerView]:
        """The views of these workers. `depths`: what each is to be thought to match, in place of what is known."""
        matched = self.depths(keys) if depths is None else depths
        return [self._view(slot, keys, matched[slot]) for slot in slots]

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

    def reserve(self, ticket: str, ask: Ask, keys: Sequence[Key], slot: int, matched: int) -> None:
        uncached_tokens = ask.prompt_tokens - matched * ask.block_tokens
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
        self._reservations[ticket] = _Reservation(slot, self._lives[slot], uncached_tokens, promised, family)

    def first_token(self, ticket: str) -> None:
        """Give back the prefill load; harmless when repeated."""
        taken = self._reservations.get(ticket)
        if taken and taken.life == self._lives[taken.slot]:
            self.uncached_tokens[taken.slot] = max(0, self.uncached_tokens[taken.slot] - taken.uncached_tokens)
            taken.uncached_tokens = 0

    def end(self, ticket: str) -> None:
        """Give back all that is left."""
        self.first_token(ticket)
        taken = self._reservations.pop(ticket, None)
        if taken is None or taken.life != self._lives[taken.slot]:
            return
        slot = taken.slot
        self.inflight[slot] = max(0, self.inflight[slot] - 1)
        self._own[slot] -= 1
        _release(self._families[slot], taken.family)
        broken = _release(self._promises[slot], taken.promised)
        held = self._held[slot]
        self._clear(slot, [key for key in broken if key not in held])

    def _view(self, slot: int, keys: Sequence[Key], matched: int) -> WorkerView:
        told = self._reports[slot]
        stored = max(0, len(self._held[slot]) - self._held_then[slot])
        return WorkerView(
            str(slot),
            matched,
            self.inflight[slot],
            self.uncached_tokens[slot],
            self._family_inflight(slot, keys, matched),
            told.prefill_tokens_per_s,
            told.step_per_sequence_s,
            told.step_base_s,
            told.total_blocks,
            max(0, min(told.total_blocks, told.unused_blocks) - stored),
            told.referenced_blocks,
            told.waiting,
            told.running,
        )

    def _family_inflight(self, slot: int, keys: Sequence[Key], depth: int) -> int:
        """Requests in flight there that share the prompt's key at the largest power of two within `depth`.

        Scaled from own requests to all where other gateways send there too.
        """
        own = self._own[slot]
        if not depth or not own:
            return 0
        count = self._families[slot].get(keys[(1 << depth.bit_length() - 1) - 1], 0)
        return round(count * self.inflight[slot] / own)

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
