"""What a steering decision is made from, and what it is. Types only; the policies are in topics/steering."""

from collections.abc import Sequence

import msgspec

from schemas.ranges import Count, OptionalName, Weight


class Ask(msgspec.Struct, frozen=True):
    """One request as steering sees it."""

    prompt_tokens: int
    prompt_blocks: int  # full blocks of the prompt; the partial last one is never shared
    block_tokens: int
    expected_output_tokens: float  # a moving average will do
    session: str = ""  # conversation or user, for the session policy
    turn: int = 0  # number of this decision, for round-robin
    draw: float = 0.0  # uniform in [0, 1), for ties and for the random policy


class WorkerView(msgspec.Struct, frozen=True):
    """One live worker as a decision sees it: what it holds of the prompt, what it has to do, how fast it is."""

    worker: str
    matched_blocks: int = 0  # longest contiguous prefix it holds, or will once its queue is done
    inflight: int = 0  # requests dispatched to it and not ended
    uncached_tokens: int = 0  # prompt tokens it still has to compute: dispatched, not yet at first token
    family_inflight: int = 0  # of `inflight`, those that share this prompt's key at the last power of two <= match
    prefill_tokens_per_s: float = 15_928.0  # learned
    step_per_sequence_s: float = 0.000_22  # learned: what one more sequence adds to every step
    step_base_s: float = 0.025  # learned: what a step takes besides
    total_blocks: int = 4_802
    unused_blocks: int = 4_802  # hold nothing at all: neither referenced nor cached, full or in part
    referenced_blocks: int = 0  # held by running requests
    waiting: int = 0
    running: int = 0

    @property
    def kv_usage(self) -> float:
        """0..1, as engines report it: referenced blocks only, blind to what is cached."""
        return self.referenced_blocks / self.total_blocks if self.total_blocks else 0.0


class Alternative(msgspec.Struct, frozen=True):
    """A worker that was not chosen, and what choosing it would have cost (seconds, or 1 - score)."""

    worker: str
    cost: float


class Choice(msgspec.Struct, frozen=True):
    """The decision, and why; enough to explain it a week later."""

    worker: str
    reason: str
    matched_blocks: int
    cost: float = 0.0
    alternatives: Sequence[Alternative] = ()


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a choice is told to whoever follows the request. Travels in jobs and events: jobs.py has the rule."""

    worker: OptionalName  # the one that was chosen, by name; empty when nobody was there
    partition: Count  # of generate.<model>, where the job went
    reason: OptionalName  # home, cold, ...: as the policy calls it
    predicted_tokens: Count = 0  # of the prompt, that the worker's prefix cache was expected to hold
    hops: Count = 0  # how often a worker has given the job back before
    alternatives: dict[str, Weight] = {}  # the nearest of the other workers -> as Alternative.cost, cheapest first
