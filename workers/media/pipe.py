"""The worker's ends of the pipes to a decoding process: every wait has a bound."""

import os
import select
from io import RawIOBase

from infra.clock import Clock


class OutOfTime(Exception):
    """The other side has neither read nor written in time."""


class Pipe:
    """One end, as wire.Readable or wire.Writable. `bound` before use."""

    def __init__(self, file: RawIOBase, event: int, clock: Clock) -> None:
        """`event`: select.POLLIN of the end to read from, select.POLLOUT of the one to write to."""
        self._file = file
        self._clock = clock
        self._poll = select.poll()
        self._poll.register(file.fileno(), event)
        self._deadline = clock.monotonic()
        os.set_blocking(file.fileno(), False)

    def bound(self, seconds: float) -> None:
        """All that follows, together, may take so long."""
        self._deadline = self._clock.monotonic() + seconds

    def readinto(self, buffer: memoryview) -> int:
        """
        Raises:
            OutOfTime
        """
        self._wait()
        return os.readv(self._file.fileno(), [buffer])

    def write(self, data: memoryview) -> int:
        """
        Raises:
            OutOfTime
            BrokenPipeError: the other side is gone.
        """
        self._wait()
        return os.write(self._file.fileno(), data)

    def close(self) -> None:
        self._file.close()

    def _wait(self) -> None:
        left_s = self._deadline - self._clock.monotonic()
        if left_s <= 0 or not self._poll.poll(left_s * 1000):
            raise OutOfTime
