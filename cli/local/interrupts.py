"""Ctrl-C, SIGTERM and a closed terminal, as a count: the first asks to stop, the second to stop at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    def __init__(self) -> None:
        self.count = 0

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def counted() -> Iterator[Interrupts]:
    """Counts the signals of this block instead of dying of them."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.on_signal) for number in SIGNALS}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
