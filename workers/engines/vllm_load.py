"""How full and how fast vLLM is, as its own steps and requests tell it."""

from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from infra.clock import Clock
from topics.steering.speed import Speed, SpeedLearner
from workers.engine import Load
from workers.engines.rate import TokenRate


class LoadBoard:
    """The latest figures. They are written once a step, so an idle engine leaves old ones: `read` corrects them."""

    def __init__(self, clock: Clock, prior: Speed) -> None:
        self._learner = SpeedLearner(prior)
        self._running = 0
        self._kv_usage = 0.0
        self._rate = TokenRate(clock)

    def write(self, running: int, kv_usage: float) -> None:
        self._running, self._kv_usage = running, kv_usage

    def generated(self, tokens: int) -> None:
        self._rate.add(tokens)

    def took(self, step_s: float, prefill_tokens: int) -> None:
        """So long was an average step of one request, during its prefill or, with 0 tokens, its decode."""
        self._learner.step(step_s, prefill_tokens, max(1, self._running))

    def read(self, unfinished: int) -> Load:
        """`unfinished` is the number of sequences that have been handed to the engine and have not ended."""
        running = min(self._running, unfinished)
        return Load(
            running=running,
            waiting=unfinished - running,
            kv_usage=self._kv_usage if unfinished else 0.0,
            tokens_per_s=self._rate.per_s(),
            speed=self._learner.speed(),
        )


class BoardWriter(StatLoggerBase):  # type: ignore[misc]  # vLLM is not type-checked here
    """vLLM calls this once a step, in our process."""

    def __init__(self, board: LoadBoard, step_tokens: int) -> None:
        """`step_tokens`: what the engine computes in one step at most."""
        self._board = board
        self._step_tokens = step_tokens

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        if scheduler_stats is not None:
            self._board.write(scheduler_stats.num_running_reqs, scheduler_stats.kv_cache_usage)
        if iteration_stats is not None:
            self._board.generated(iteration_stats.num_generation_tokens)
            for request in iteration_stats.finished_requests:
                self._learn(request)

    def _learn(self, request: Any) -> None:
        computed = request.num_prompt_tokens - request.num_cached_tokens
        steps = -(-computed // self._step_tokens)
        if steps > 0 and request.prefill_time > 0:
            self._board.took(request.prefill_time / steps, computed // steps)
        if request.mean_time_per_output_token > 0:
            self._board.took(request.mean_time_per_output_token, 0)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""
