"""Slows processes down as a CPU quota does: stopped for a share of every period, running for the rest."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import psutil

PERIOD_S = 0.1


@contextlib.contextmanager
def throttled(processes: Sequence[psutil.Process], share: float, period_s: float = PERIOD_S) -> Iterator[None]:
    """They run `share` of the time while the block lasts; 1 leaves them alone. On leaving all go on."""
    done = threading.Event()

    def pulse() -> None:
        while not done.is_set():
            _each(processes, psutil.Process.suspend)
            done.wait(period_s * (1.0 - share))
            _each(processes, psutil.Process.resume)
            done.wait(period_s * share)

    thread = threading.Thread(target=pulse, name="throttle")
    if share < 1.0:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if share < 1.0:
            thread.join()


def _each(processes: Sequence[psutil.Process], action: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            action(process)
