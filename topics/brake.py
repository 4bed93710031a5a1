"""How fast a partition may turn records into dead letters. Pure.

One wrong setting (credentials of the store, a model that is not served here, a reader that is too old) makes a dead
letter of every record. Past the bound a partition waits before each one, so that somebody can mend it before the topic
has been emptied.
"""

from typing import Self

import msgspec

from infra.settings import Settings


class Bound(msgspec.Struct, frozen=True):
    """So many at once, and after that so many per second."""

    burst: int = 100
    per_s: float = 1.0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(settings.dead_letter_burst, settings.dead_letters_per_min / 60)


class Brake:
    """Of one partition: a token bucket."""

    def __init__(self, bound: Bound, now: float) -> None:
        self._bound = bound
        self._left = float(bound.burst)
        self._at = now

    def wait_s(self, now: float) -> float:
        """Count one more; how long to wait before it. `now`: monotonic seconds, never going back."""
        self._left = min(self._bound.burst, self._left + (now - self._at) * self._bound.per_s)
        self._at = now
        self._left -= 1
        return max(0.0, -self._left / self._bound.per_s)
