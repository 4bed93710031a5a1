"""Time comes in as an argument. `time.time` is banned everywhere else."""

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; for durations and deadlines inside one process."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """For tests: stands still until told."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
