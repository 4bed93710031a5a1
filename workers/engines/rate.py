"""Tokens per second over the last few seconds."""

from collections import deque

from infra.clock import Clock

WINDOW_S = 5.0


class TokenRate:
    """A sliding window over engine steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[tuple[float, int]] = deque()
        self._tokens = 0

    def add(self, tokens: int) -> None:
        self._steps.append((self._clock.monotonic(), tokens))
        self._tokens += tokens
        self._forget()

    def per_s(self) -> float:
        self._forget()
        return self._tokens / WINDOW_S

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - WINDOW_S
        while self._steps and self._steps[0][0] < oldest:
            self._tokens -= self._steps.popleft()[1]
