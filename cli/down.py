"""`triptych down`: stop a running stack from another terminal, touching no process that is not its own."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cli.errors import CommandFailed
from cli.local import state
from cli.local.state import StackState

# The sum of what the parts may take to stop in order, and some more.
ORDERLY_S = 75.0
KILLED_S = 5.0
LOOK_S = 0.1


def down(home: Path) -> list[str]:
    """Stop it and return the names of the parts that ran.

    Raises:
        CommandFailed: no stack runs here, or a process does not end.
    """
    running = state.running(home)
    if running is None:
        state.remove(home)
        raise CommandFailed(f"no stack runs in {home}")
    alive = state.ours_alive(running)
    if state.SUPERVISOR in alive:
        os.kill(running.supervisor, signal.SIGTERM)
        _wait(running, ORDERLY_S)
    # Without a supervisor, or with one that did not manage: the parts lead their own groups.
    for name, pid in state.ours_alive(running).items():
        with suppress(ProcessLookupError):
            (os.kill if name == state.SUPERVISOR else os.killpg)(pid, signal.SIGKILL)
    _wait(running, KILLED_S)
    left = state.ours_alive(running)
    if left:
        raise CommandFailed(f"still running: {', '.join(f'{name} ({pid})' for name, pid in left.items())}")
    state.remove(home)
    return sorted(alive)


def _wait(running: StackState, within_s: float, pause: Callable[[float], None] = time.sleep) -> None:
    deadline = time.monotonic() + within_s
    while state.ours_alive(running) and time.monotonic() < deadline:
        pause(LOOK_S)
