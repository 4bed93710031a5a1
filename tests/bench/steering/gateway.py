"""One gateway of the fast mode: what it knows, how it decides, what it keeps of a decision."""

import random
from collections.abc import Sequence

import msgspec

from schemas.steering import Ask, WorkerView
from tests.bench.steering.local_index import LocalIndex, Reservation
from tests.bench.steering.traffic import BLOCK, Turn
from topics.steering.approximate import OwnDecisions
from topics.steering.policy import Policy
from topics.steering.speed import SpeedLearner
from workers.engines.sim_model import SimWorker
from workers.engines.sim_parts import Sequence as SimSequence


class Variant(msgspec.Struct, frozen=True):
    """How good the information is; equal for all arms."""

    name: str = "exact"
    late_s: float = 0.0  # index events arrive so much later; own decisions at once
    gateways: int = 1  # that share no reservations
    report_s: float = 0.0  # gauges and counts are as old as the last report; 0 = exact
    handoff: bool = False  # workers give queued jobs back


VARIANTS = {
    each.name: each
    for each in (
        Variant(),
        Variant("late", late_s=2.0),
        Variant("gateways4", gateways=4, report_s=1.0),
        Variant("handoff", handoff=True),
    )
}


class Record(msgspec.Struct):
    """One request's life."""

    turn: Turn
    gateway: int
    arrived_at: float
    predicted_tokens: int = 0
    cached_tokens: int = 0
    generated: int = 0  # by workers that died
    hops: int = 0  # how often a worker has given it back
    first_at: float = 0.0
    ended_at: float = 0.0
    kv_usage: float = 0.0  # mean over the workers, at arrival
    reservation: Reservation | None = None


class _Gauges(msgspec.Struct, frozen=True):
    unused_blocks: int
    referenced_blocks: int
    waiting: int
    running: int


class Gateway:
    def __init__(
        self,
        workers: Sequence[SimWorker],
        learners: Sequence[SpeedLearner],
        policy: Policy,
        variant: Variant,
        rng: random.Random,
    ) -> None:
        self.index = LocalIndex(len(workers))
        self.live = set(range(len(workers)))
        self._workers = workers
        self._learners = learners
        self._speeds = [learner.speed() for learner in learners]
        self._policy = policy
        self._variant = variant
        self._rng = rng
        self._turn = 0
        self._output_tokens = 500.0  # moving average of what answers have cost
        self._own = OwnDecisions(workers[0].params.blocks) if policy.approximate else None
        self._gauges = [_gauges(worker) for worker in workers]

    def views(self, keys: Sequence[int] = ()) -> list[WorkerView]:
        """Of all live workers, for a prompt of these blocks."""
        depths = self._depths(keys)
        return [self._view(slot, keys, depths[slot]) for slot in sorted(self.live)]

    def place(self, record: Record, without: int | None = None) -> int:
        """Decide and reserve; returns the worker's slot. `without`: the one that has just given it back."""
        turn = record.turn
        tokens = turn.prompt_tokens + record.generated
        keys = turn.keys[: tokens // BLOCK]
        depths = self._depths(keys)
        ask = Ask(tokens, len(keys), BLOCK, self._output_tokens, turn.session, self._turn, self._rng.random())
        views = [self._view(slot, keys, depths[slot]) for slot in sorted(self.live - {without})]
        if self._turn % 32 == 0:
            self._speeds = [learner.speed() for learner in self._learners]
        slot = int(self._policy.decide(ask, views).worker)
        self._turn += 1
        record.predicted_tokens = depths[slot] * BLOCK
        record.kv_usage = sum(view.kv_usage for view in views) / len(views)
        record.reservation = self.index.reserve(slot, keys, depths[slot], tokens - depths[slot] * BLOCK)
        if self._own:
            self._own.record(str(slot), keys)
        return slot

    def first_token(self, record: Record, sequence: SimSequence, at: float) -> None:
        assert record.reservation
        if sequence.generated == record.generated + 1:
            self.index.first_token(record.reservation)
        if not record.first_at:
            record.first_at = at
            record.cached_tokens = sequence.cached_tokens

    def end(self, record: Record) -> None:
        assert record.reservation
        self.index.end(record.reservation)
        self._output_tokens += 0.02 * (record.turn.output_tokens - self._output_tokens)

    def withdraw(self, record: Record) -> None:
        """A worker has given it back: nothing is reserved there any more."""
        assert record.reservation
        self.index.first_token(record.reservation)
        self.index.end(record.reservation)

    def lost(self, slot: int) -> None:
        self.live.discard(slot)
        self.index.forget(slot)
        if self._own:
            self._own.forget(str(slot))

    def take_reports(self) -> None:
        for slot, worker in enumerate(self._workers):
            self._gauges[slot] = _gauges(worker)
            if self._variant.gateways > 1 and slot in self.live:
                self.index.report(slot, len(worker.waiting) + len(worker.running), worker.uncached_tokens)

    def _depths(self, keys: Sequence[int]) -> list[int]:
        if self._own:
            return [self._own.matched_blocks(str(slot), keys) for slot in range(len(self._workers))]
        return self.index.depths(keys)

    def _view(self, slot: int, keys: Sequence[int], depth: int) -> WorkerView:
        index, speed = self.index, self._speeds[slot]
        gauges = self._gauges[slot] if self._variant.report_s else _gauges(self._workers[slot])
        return WorkerView(
            str(slot),
            depth,
            index.inflight[slot],
            index.uncached_tokens[slot],
            index.family_inflight(slot, keys, depth),
            speed.prefill_tokens_per_s,
            speed.step_per_sequence_s,
            speed.step_base_s,
            self._workers[slot].params.blocks,
            gauges.unused_blocks,
            gauges.referenced_blocks,
            gauges.waiting,
            gauges.running,
        )


def _gauges(worker: SimWorker) -> _Gauges:
    return _Gauges(worker.cache.blank, worker.cache.referenced, len(worker.waiting), len(worker.running))
