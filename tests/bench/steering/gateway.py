"""One gateway of the fast mode: what it is told, how it decides, what it keeps of a decision."""

from collections.abc import Iterable, Sequence

import msgspec

from schemas.steering import Ask, WorkerView
from tests.bench.steering.desks import Desk, LocalDesk
from tests.bench.steering.traffic import BLOCK, Turn
from topics.steering.speed import Speed, SpeedLearner
from workers.engines.sim_model import SimWorker
from workers.engines.sim_parts import Sequence as SimSequence
from workers.presence import REPORT_S

# How often the exact variant works out the speeds anew: they change slowly, and it reports with every decision.
SPEEDS_EVERY = 32


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
        Variant("reported", report_s=REPORT_S),
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
    ticket: str = ""  # of its reservation


class Gateway:
    def __init__(
        self, workers: Sequence[SimWorker], learners: Sequence[SpeedLearner], desk: Desk, variant: Variant
    ) -> None:
        self.desk = desk
        self.live = set(range(len(workers)))
        self._workers = workers
        self._learners = learners
        self._variant = variant
        self._decisions = 0
        self._speeds: list[Speed] = []
        self._output_tokens = 500.0  # moving average of what answers have cost
        self._learn()
        for slot in self.live:
            desk.begin(slot, self._view(slot))

    def views(self) -> list[WorkerView]:
        """Of all live workers, for no prompt in particular."""
        return self.desk.look((), sorted(self.live))

    def place(self, record: Record, reporting: Iterable[int], without: int | None = None) -> int:
        """Decide and reserve; returns the worker's slot.

        `reporting`: the workers that run. `without`: the one that has just given it back.
        """
        if not self._variant.report_s:
            if self._decisions % SPEEDS_EVERY == 0:
                self._learn()
            self.desk.report({slot: self._view(slot) for slot in reporting})
        tokens = record.turn.prompt_tokens + record.generated
        keys = record.turn.keys[: tokens // BLOCK]
        ask = Ask(tokens, len(keys), BLOCK, self._output_tokens, record.turn.session)
        self._decisions += 1
        record.ticket = str(self._decisions)
        choice = self.desk.place(record.ticket, ask, keys, sorted(self.live - {without}))
        record.predicted_tokens = choice.matched_blocks * BLOCK
        usages = [self._workers[slot].cache.referenced / self._workers[slot].cache.blocks for slot in self.live]
        record.kv_usage = sum(usages) / len(usages)
        return int(choice.worker)

    def first_token(self, record: Record, sequence: SimSequence, at: float) -> None:
        if sequence.generated == record.generated + 1:
            self.desk.first_token(record.ticket)
        if not record.first_at:
            record.first_at = at
            record.cached_tokens = sequence.cached_tokens

    def end(self, record: Record) -> None:
        self.desk.end(record.ticket)
        self._output_tokens += 0.02 * (record.turn.output_tokens - self._output_tokens)

    def withdraw(self, record: Record) -> None:
        """A worker has given it back: nothing is reserved there any more."""
        self.desk.end(record.ticket)

    def lost(self, slot: int) -> None:
        self.live.discard(slot)
        self.desk.retire(slot)

    def back(self, slot: int) -> None:
        """A lost worker is there again, with an empty cache."""
        self.live.add(slot)
        self.desk.begin(slot, self._view(slot))

    def take_reports(self, reporting: Iterable[int]) -> None:
        slots = [slot for slot in reporting if slot in self.live]
        self._learn()
        self.desk.report({slot: self._view(slot) for slot in slots})
        if self._variant.gateways > 1:
            assert isinstance(self.desk, LocalDesk), "gateways that share Redis share their reservations"
            for slot in slots:
                worker = self._workers[slot]
                self.desk.index.recount(slot, len(worker.waiting) + len(worker.running), worker.uncached_tokens)

    def _learn(self) -> None:
        self._speeds = [learner.speed() for learner in self._learners]

    def _view(self, slot: int) -> WorkerView:
        """What the worker reports of itself, as workers/presence.py does."""
        worker, speed = self._workers[slot], self._speeds[slot]
        return WorkerView(
            str(slot),
            prefill_tokens_per_s=speed.prefill_tokens_per_s,
            step_per_sequence_s=speed.step_per_sequence_s,
            step_base_s=speed.step_base_s,
            total_blocks=worker.params.blocks,
            unused_blocks=worker.cache.blank,
            referenced_blocks=worker.cache.referenced,
            waiting=len(worker.waiting),
            running=len(worker.running),
        )
