"""Which queued jobs a worker gives back to steering. Pure.

A decision is made once, when a job is dispatched; a worker that turns slow afterwards keeps what it was given. It gives
back the jobs that have not begun, would miss the bound on the time to the first token here, and would clearly be
better off elsewhere.
"""

from collections.abc import Sequence

import msgspec

from schemas.steering import WorkerView

MAX_HOPS = 2
# What waits here must take at least twice as long as starting from nothing elsewhere: a job never moves for noise.
GAIN = 2.0
# A worker whose running requests hold more of its memory than this is not idle: what it takes in cold drives out what
# others will come for. (In the model, giving back to fuller ones costs more than it gains.)
IDLE_KV_USAGE = 0.6


class Queued(msgspec.Struct, frozen=True):
    """A job that has not begun here."""

    ticket: str
    prompt_tokens: int
    uncached_tokens: int  # of its prompt, to compute here
    waited_s: float  # since it was accepted
    hops: int = 0  # how often it has been given back


def give_back(
    queue: Sequence[Queued],
    begun_tokens: int,
    starts_per_s: float,
    me: WorkerView,
    others: Sequence[WorkerView],
    bound_s: float,
) -> list[str]:
    """Tickets to give back, longest queued first: who has waited longest gets the idle worker.

    `begun_tokens`: prompt tokens of begun jobs still to compute. `starts_per_s`: jobs that this worker has been
    starting lately; it counts what tokens do not tell, a cache full of running requests. Each job given back is
    reckoned with where it would go, so the first idle worker does not get them all.
    """
    idle = [other for other in others if not other.waiting and other.kv_usage <= IDLE_KV_USAGE]
    if 2 * len(idle) < len(others):
        return []  # all have a queue: moving work about would only add to it
    loads_s = [(other.uncached_tokens / other.prefill_tokens_per_s, other) for other in idle]
    kept, ahead_tokens, given = 0, begun_tokens, []
    for job in queue:
        here_s = max(
            (ahead_tokens + job.uncached_tokens) / me.prefill_tokens_per_s,
            (kept + 1) / starts_per_s if starts_per_s else 0.0,
        )
        best = min(range(len(loads_s)), key=lambda at: _there_s(job, *loads_s[at]), default=0)
        misses = job.waited_s + here_s > bound_s
        there_s = _there_s(job, *loads_s[best]) if loads_s else float("inf")
        if misses and job.hops < MAX_HOPS and there_s <= bound_s / 2 and here_s > GAIN * there_s:
            load_s, other = loads_s[best]
            loads_s[best] = (load_s + job.prompt_tokens / other.prefill_tokens_per_s, other)
            given.append(job.ticket)
        else:
            kept += 1
            ahead_tokens += job.uncached_tokens
    return given


def _there_s(job: Queued, load_s: float, other: WorkerView) -> float:
    """Until its first token on another worker, as if that one held nothing of it."""
    return load_s + job.prompt_tokens / other.prefill_tokens_per_s
