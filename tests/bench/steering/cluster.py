"""Fast mode: simulated workers, gateways and one policy in one process on a virtual clock."""

import heapq
import random
from collections.abc import Callable, Sequence

import msgspec

from tests.bench.steering import handoff
from tests.bench.steering.desks import Desk, LocalDesk
from tests.bench.steering.gateway import Gateway, Record, Variant
from tests.bench.steering.traffic import Rung, Turn
from tests.bench.steering.workloads import Workload
from topics.steering.policy import Policy
from topics.steering.speed import Speed, SpeedLearner
from workers.engines.sim_model import SimWorker
from workers.engines.sim_parts import Sequence as SimSequence
from workers.engines.sim_parts import SimParams

# A dead worker is noticed when its lease runs out.
NOTICED_S = 3.0


# Speed of a worker that all but stalls.
STALLED = 0.02


class _Ear:
    """Hears one worker: its cache events go to every gateway's index, late if the variant says so."""

    def __init__(self, cluster: "Cluster", slot: int) -> None:
        self._cluster, self._slot = cluster, slot
        self._steps = 0

    def stored(self, keys: Sequence[int], parent: int | None) -> None:
        self._cluster.heard(self._slot, lambda desk: desk.stored(self._slot, keys))

    def removed(self, keys: Sequence[int]) -> None:
        self._cluster.heard(self._slot, lambda desk: desk.removed(self._slot, keys))

    def cleared(self) -> None:
        """A killed worker says nothing; its lease does."""

    def first_token(self, sequence: SimSequence, at: float) -> None:
        self._cluster.starts[self._slot].add(at)
        self._cluster.first_token(sequence, at)

    def finished(self, sequence: SimSequence, at: float) -> None:
        self._cluster.finished(sequence, at)

    def step(self, seconds: float, prefilled_tokens: int, sequences: int) -> None:
        self._steps += 1
        if prefilled_tokens or self._steps % 8 == 0:  # enough to learn from, and cheap
            self._cluster.learners[self._slot].step(seconds, prefilled_tokens, sequences)


MakeDesk = Callable[[int, Policy, random.Random], Desk]  # for so many workers


class Cluster:
    def __init__(
        self, workload: Workload, policy: Policy, seed: int, variant: Variant, desk: MakeDesk = LocalDesk
    ) -> None:
        self.workload = workload
        self.variant = variant
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._open = 0
        self._records: list[Record] = []
        self._dead: set[int] = set()
        self._deaths = [0] * workload.workers
        self._stranded: list[Record] = []
        self._next_gateway = 0
        self.learners = [SpeedLearner(Speed()) for _ in range(workload.workers)]
        self.starts = [handoff.Starts() for _ in range(workload.workers)]
        ears = [_Ear(self, slot) for slot in range(workload.workers)]
        self.workers = [SimWorker(self._params(slot), ear, ear) for slot, ear in enumerate(ears)]
        self.gateways = [
            Gateway(self.workers, self.learners, desk(workload.workers, policy, random.Random(f"{seed} {n}")), variant)
            for n in range(variant.gateways)
        ]

    def close(self) -> None:
        for gateway in self.gateways:
            gateway.desk.close()

    def _params(self, slot: int) -> SimParams:
        params = self.workload.params
        return msgspec.structs.replace(params, speed=0.5) if slot in self.workload.slow else params

    def run(self, rung: Rung) -> list[Record]:
        """One rung to its end, drained; returns its requests."""
        self._records = []
        start = self.now
        for turn in rung.turns:
            self._later(start + turn.at, self._arrival(turn))
        if self.workload.kill:
            self._later(start + self.workload.kill[0], self._kill)
            self._later(start + self.workload.kill[1], self._revive)
        if self.workload.slowdown:
            self._later(start + self.workload.slowdown[0], lambda: self._set_speed(STALLED))
            self._later(start + self.workload.slowdown[1], lambda: self._set_speed(1.0))
        if self.variant.handoff:
            self._later(start + handoff.EVERY_S, self._hand_off)
        while self._open or self._events:
            self._advance()
        return self._records

    def _advance(self) -> None:
        times = [self._events[0][0]] if self._events else []
        if self.workload.linked or not times:
            times += [at for worker in self.workers if (at := worker.next_event_at) is not None]
        at = min(times)
        if not self._events and not self.workload.linked:
            at += 1.0  # nothing is decided any more: drain in strides
        if self.variant.report_s:
            at = self._reported(at)
        for worker in self.workers:
            worker.run_until(at)
        self.now = at
        while self._events and self._events[0][0] <= at:
            heapq.heappop(self._events)[2]()

    def _reported(self, at: float) -> float:
        """Stop at the next full report interval on the way to `at`, and let the workers report there."""
        due = (self.now // self.variant.report_s + 1) * self.variant.report_s
        if due > at:
            return at
        for worker in self.workers:
            worker.run_until(due)
        self.now = due
        for gateway in self.gateways:
            gateway.take_reports(self._reporting())
        return due

    def _later(self, at: float, do: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, do))

    def heard(self, slot: int, tell: Callable[[Desk], None]) -> None:
        life = self._deaths[slot]

        def arrive() -> None:
            if life == self._deaths[slot]:  # what a killed worker still had to tell is lost
                for gateway in self.gateways:
                    tell(gateway.desk)

        if self.variant.late_s:
            self._later(max(worker.now for worker in self.workers) + self.variant.late_s, arrive)
        else:
            arrive()

    def _reporting(self) -> list[int]:
        return [slot for slot in range(len(self.workers)) if slot not in self._dead]

    def _arrival(self, turn: Turn) -> Callable[[], None]:
        def arrive() -> None:
            self._next_gateway = (self._next_gateway + 1) % len(self.gateways)
            record = Record(turn, self._next_gateway, self.now)
            self._records.append(record)
            self._open += 1
            self._dispatch(record)

        return arrive

    def _dispatch(self, record: Record, without: int | None = None) -> None:
        slot = self.gateways[record.gateway].place(record, self._reporting(), without)
        if slot in self._dead:
            self._stranded.append(record)
            return
        turn = record.turn
        sequence = SimSequence(record, turn.keys, turn.prompt_tokens, turn.output_tokens, record.generated)
        self.workers[slot].submit(sequence)

    def first_token(self, sequence: SimSequence, at: float) -> None:
        record: Record = sequence.tag
        self.gateways[record.gateway].first_token(record, sequence, at)

    def finished(self, sequence: SimSequence, at: float) -> None:
        record: Record = sequence.tag
        record.ended_at = at
        self._open -= 1
        self.gateways[record.gateway].end(record)
        if record.turn.follow:
            self._later(at + record.turn.follow.at, self._arrival(record.turn.follow))

    def _hand_off(self) -> None:
        for slot, worker in enumerate(self.workers):
            views = self.gateways[0].views()
            for sequence in handoff.given_back(slot, worker, self.starts[slot], views, self.now):
                record: Record = sequence.tag
                record.hops += 1
                self.gateways[record.gateway].withdraw(record)
                self._dispatch(record, without=slot)
        if self._open:
            self._later(self.now + handoff.EVERY_S, self._hand_off)

    def _set_speed(self, speed: float) -> None:
        self.workers[0].params = msgspec.structs.replace(self.workers[0].params, speed=speed)

    def _kill(self) -> None:
        for sequence in self.workers[0].kill():
            sequence.tag.generated = sequence.generated
            self._stranded.append(sequence.tag)
        self._dead.add(0)
        self._deaths[0] += 1
        self._later(self.now + NOTICED_S, self._notice)

    def _notice(self) -> None:
        for gateway in self.gateways:
            gateway.lost(0)
        stranded, self._stranded = self._stranded, []
        for record in stranded:
            self._dispatch(record)

    def _revive(self) -> None:
        self._dead.discard(0)
        for gateway in self.gateways:
            gateway.back(0)
