"""What a forked child owes its parent: to die with it, and to leave its signals alone."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Leash:
    """Every child forked while the leash is `held`, and every child of those, is on it.

    - It dies as soon as this process does, however that dies. vLLM's engine notices only between two requests; until
      then it would keep cores, memory and our listening port, and a restarted worker would have to share with it.
    - It is in a process group of its own: a Ctrl-C would otherwise stop the engine under the streams we are draining.
    - It does not write into the pipe through which our event loop hears of signals: a SIGTERM to the engine would
      otherwise tell us to stop.

    Only while it is held: a program started at another time must be free to begin a session of its own, which the
    leader of a process group may not. Children started by exec ("spawn") are not affected.
    """

    def __init__(self) -> None:
        # Nobody ever writes: when the last copy of the writing end is closed, by our death, reading ends.
        self._reader, self._writer = os.pipe()
        self._held = False
        os.register_at_fork(after_in_child=self._put_on)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around whatever forks."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _put_on(self) -> None:
        if not self._held:
            return
        signal.set_wakeup_fd(-1)
        os.setpgid(0, 0)
        if self._writer >= 0:  # a grandchild's copy was closed before it was born
            os.close(self._writer)
            self._writer = -1
        threading.Thread(target=self._follow, name="leash", daemon=True).start()

    def _follow(self) -> None:
        os.read(self._reader, 1)
        os.kill(os.getpid(), signal.SIGKILL)
