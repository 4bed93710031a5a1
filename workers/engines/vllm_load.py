"""How full and how fast vLLM is, as its own steps and cache events tell it."""

from typing import Any

from infra.clock import Clock
from topics.steering.speed import Speed, SpeedLearner
from workers.engine import Load
from workers.engines.rate import TokenRate


class Step:
    """What one step of the engine did, from the two kinds of figures that vLLM gives out with it."""

    def __init__(self, details: Any, token_gaps_s: list[float]) -> None:
        """`details` counts what the scheduler put into the step; `token_gaps_s` is the time since the token before, of
        each sequence that got one, by the engine's own clock."""
        recomputed = details.num_generation_tokens - details.num_generation_requests  # of sequences that were preempted
        self.prefill_tokens: int = details.num_ctx_tokens + max(0, recomputed)
        self.sequences: int = details.num_ctx_requests + details.num_generation_requests
        # From step to step, where somebody was in both: that is what a sequence waits for a token, and has no idle time
        # in it. Else, so for a prompt alone, what the engine has measured of the step itself.
        self.seconds: float = min(token_gaps_s) if token_gaps_s else details.elapsed_ms / 1_000.0


class LoadBoard:
    """The latest figures. They are written once a step, so an idle engine leaves old ones: `read` corrects them."""

    def __init__(self, clock: Clock, prior: Speed) -> None:
        self._learner = SpeedLearner(prior)
        self._running = 0
        self._kv_usage = 0.0
        self._rate = TokenRate(clock)

    def record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """What vLLM says after each step (and when a request was aborted in between, then without details)."""
        if iteration_stats is not None:
            self._rate.add(iteration_stats.num_generation_tokens)
        if scheduler_stats is None:
            return
        self._running, self._kv_usage = scheduler_stats.num_running_reqs, scheduler_stats.kv_cache_usage
        details = scheduler_stats.iteration_details
        if details is not None and not details.is_dummy:
            step = Step(details, iteration_stats.inter_token_latencies_iter if iteration_stats is not None else [])
            self._learner.step(step.seconds, step.prefill_tokens, step.sequences)

    def read(self, unfinished: int, total_blocks: int, held_blocks: int | None) -> Load:
        """`unfinished`: sequences that have been handed to the engine and have not ended. `held_blocks`: as EventStream
        counts them."""
        running = min(self._running, unfinished)
        kv_usage = self._kv_usage if unfinished else 0.0
        return Load(
            running=running,
            waiting=unfinished - running,
            kv_usage=kv_usage,
            kv_unused=_unused(total_blocks, kv_usage, running, held_blocks),
            tokens_per_s=self._rate.per_s(),
            speed=self._learner.speed(),
        )


def _unused(total_blocks: int, kv_usage: float, running: int, held_blocks: int | None) -> float:
    """Share of the blocks that hold nothing. vLLM gives out no such figure, but what it is made of.

    A block has content that can be matched (its events tell), or belongs to a sequence and is not full yet (each
    running sequence has one at most), or holds nothing. Where the events do not tell, nothing is taken for unused.
    """
    usable = total_blocks - 1  # vLLM keeps one for itself
    if usable <= 0 or held_blocks is None:
        return 0.0
    unreferenced = round((1.0 - kv_usage) * usable)
    return max(0, min(unreferenced, usable - held_blocks - running)) / total_blocks
