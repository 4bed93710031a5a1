"""Fast mode: simulated workers, the local index and one policy in one process on a virtual clock."""

import heapq
import random
from collections.abc import Callable

import msgspec

from schemas.steering import Ask, WorkerView
from tests.bench.steering.local_index import LocalIndex, Reservation
from tests.bench.steering.workloads import BLOCK, Rung, Turn, Workload
from topics.steering.policy import Policy
from workers.engines.sim_model import Sequence, SimWorker


class Record(msgspec.Struct):
    """One request's life."""

    turn: Turn
    arrived_at: float
    predicted_tokens: int = 0
    cached_tokens: int = 0
    first_at: float = 0.0
    ended_at: float = 0.0
    reservation: Reservation | None = None


class _Ears:
    """Listens to one worker's cache."""

    def __init__(self, index: LocalIndex, slot: int) -> None:
        self._index, self._slot = index, slot

    def stored(self, keys, parent) -> None:
        self._index.stored(self._slot, keys)

    def removed(self, keys) -> None:
        self._index.removed(self._slot, keys)

    def cleared(self) -> None:
        self._index.forget(self._slot)


class Cluster:
    def __init__(self, workload: Workload, policy: Policy, seed: int) -> None:
        self.workload = workload
        self.policy = policy
        self.now = 0.0
        self.records: list[Record] = []
        self.index = LocalIndex(workload.workers)
        self._rng = random.Random(seed + 1_000)
        self._turns = 0
        self._open = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.workers = [
            SimWorker(self._params(slot), _Ears(self.index, slot), self) for slot in range(workload.workers)
        ]
        self._output_tokens = 500.0

    def _params(self, slot: int):
        params = self.workload.params
        return msgspec.structs.replace(params, speed=0.5) if slot in self.workload.slow else params

    def run(self, rung: Rung) -> list[Record]:
        self.records = []
        start = self.now
        for turn in rung.turns:
            self._at(start + turn.at, lambda turn=turn: self._arrive(turn))
        while self._events or self._open:
            at = self._events[0][0] if self._events else self.now + 0.5
            for worker in self.workers:
                worker.run_until(at)
            self.now = at
            while self._events and self._events[0][0] <= at:
                heapq.heappop(self._events)[2]()
        return self.records

    def _at(self, at: float, do: Callable[[], None]) -> None:
        self._turns += 1
        heapq.heappush(self._events, (at, self._turns, do))

    def _arrive(self, turn: Turn) -> None:
        record = Record(turn, self.now)
        self.records.append(record)
        self._open += 1
        self._dispatch(record)

    def _dispatch(self, record: Record) -> None:
        turn = record.turn
        blocks = turn.prompt_tokens // BLOCK
        keys = turn.keys[:blocks]
        depths = self.index.depths(keys)
        ask = Ask(turn.prompt_tokens, blocks, BLOCK, self._output_tokens, turn.session, len(self.records), self._rng.random())
        choice = self.policy.decide(ask, [self._view(slot, keys, depth) for slot, depth in enumerate(depths)])
        slot = int(choice.worker)
        matched = depths[slot]
        record.predicted_tokens = matched * BLOCK
        record.reservation = self.index.reserve(slot, keys, matched, turn.prompt_tokens - matched * BLOCK)
        self.workers[slot].submit(Sequence(record, turn.keys, turn.prompt_tokens, turn.output_tokens))

    def _view(self, slot: int, keys, depth: int) -> WorkerView:
        worker, index = self.workers[slot], self.index
        cache = worker.cache
        params = worker.params
        return WorkerView(
            str(slot),
            depth,
            index.inflight[slot],
            index.uncached_tokens[slot],
            index.family_inflight(slot, keys, depth),
            params.prefill_tokens_per_s * params.speed,
            params.step_per_sequence_s / params.speed,
            params.blocks,
            cache.blank,
            cache.referenced,
            len(worker.waiting),
            len(worker.running),
        )

    def first_token(self, sequence: Sequence, at: float) -> None:
        record = sequence.tag
        if not record.first_at:
            record.first_at = at
            record.cached_tokens = sequence.cached_tokens
            self.index.first_token(record.reservation)

    def finished(self, sequence: Sequence, at: float) -> None:
        record = sequence.tag
        record.ended_at = at
        self._open -= 1
        self._output_tokens += 0.02 * (record.turn.output_tokens - self._output_tokens)
        self.index.end(record.reservation)
