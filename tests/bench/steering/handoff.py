"""Hand-off in the fast mode: every half second each worker looks at its queue."""

from collections import deque

from tests.bench.steering.gateway import Record
from topics.steering.handoff import Queued, give_back
from workers.engines.sim_model import SimWorker
from workers.engines.sim_parts import Sequence

EVERY_S = 0.5
BOUND_S = 2.0
# Over which the rate of starts is measured.
WINDOW_S = 5.0


class Starts:
    """Jobs that one worker has started lately."""

    def __init__(self) -> None:
        self._at: deque[float] = deque()

    def add(self, at: float) -> None:
        self._at.append(at)

    def per_s(self, now: float) -> float:
        while self._at and self._at[0] < now - WINDOW_S:
            self._at.popleft()
        return max(len(self._at), 1) / WINDOW_S


def given_back(slot: int, worker: SimWorker, starts: Starts, views: list, now: float) -> list[Sequence]:
    """Take out of a worker's queue what it gives back now."""
    unbegun = {str(number): each for number, each in enumerate(worker.waiting) if not each.generated}
    queue = [_queued(ticket, each, worker, now) for ticket, each in unbegun.items()]
    me = next((view for view in views if view.worker == str(slot)), None)
    if not queue or me is None:
        return []
    others = [view for view in views if view.worker != str(slot)]
    begun = worker.uncached_tokens - sum(job.uncached_tokens for job in queue)
    leaving = [unbegun[ticket] for ticket in give_back(queue, begun, starts.per_s(now), me, others, BOUND_S)]
    for sequence in leaving:
        worker.abort(sequence)
    return leaving


def _queued(ticket: str, sequence: Sequence, worker: SimWorker, now: float) -> Queued:
    record: Record = sequence.tag
    uncached = sequence.prompt_tokens - worker.params.block_tokens * worker.cache.match(
        sequence.keys, sequence.prompt_tokens // worker.params.block_tokens
    )
    return Queued(ticket, sequence.prompt_tokens, uncached, now - record.arrived_at, record.hops)
