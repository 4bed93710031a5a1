"""How full vLLM is, as its own steps tell it."""

from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from infra.clock import Clock
from workers.engine import Load
from workers.engines.rate import TokenRate


class LoadBoard:
    """The latest figures. They are written once a step, so an idle engine leaves old ones: `read` corrects them."""

    def __init__(self, clock: Clock) -> None:
        self._running = 0
        self._kv_usage = 0.0
        self._rate = TokenRate(clock)

    def write(self, running: int, kv_usage: float) -> None:
        self._running, self._kv_usage = running, kv_usage

    def generated(self, tokens: int) -> None:
        self._rate.add(tokens)

    def read(self, unfinished: int) -> Load:
        """`unfinished` is the number of sequences that have been handed to the engine and have not ended."""
        running = min(self._running, unfinished)
        return Load(
            running=running,
            waiting=unfinished - running,
            kv_usage=self._kv_usage if unfinished else 0.0,
            tokens_per_s=self._rate.per_s(),
        )


class BoardWriter(StatLoggerBase):  # type: ignore[misc]  # vLLM is not type-checked here
    """vLLM calls this once a step, in our process."""

    def __init__(self, board: LoadBoard) -> None:
        self._board = board

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        if scheduler_stats is not None:
            self._board.write(scheduler_stats.num_running_reqs, scheduler_stats.kv_cache_usage)
        if iteration_stats is not None:
            self._board.generated(iteration_stats.num_generation_tokens)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""
