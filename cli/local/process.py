"""One supervised child process: how to run it, how to tell that it serves, and how to be sure that it ends.

Every child leads its own process group, so that Ctrl-C in a terminal reaches only us and we choose the order of the
stop, and so that what a child leaves behind can be ended with it. On Linux the kernel also signals the child when we
die without a chance to clean up. That signal is tied to the thread that started the child: start children from the
main thread only.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from cli.errors import CommandFailed
from infra import settings

PR_SET_PDEATHSIG = 1
POLL_S = 0.05
TAIL_LINES = 15
TAIL_BYTES = 16_384


class PartFailed(CommandFailed):
    """A part did not come up; the message holds the end of its log."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """How to run one part of the local stack."""

    name: str
    argv: Sequence[str | Path]
    log: Path
    port: int
    # Answers within a second, never raises; False while the part cannot serve yet.
    ready: Callable[[], bool]
    start_limit_s: float
    environment: Mapping[str, str] = {}
    stop_limit_s: float = 5.0
    # What the part gets from the kernel when we are killed. Ours want SIGTERM, to end their own children first.
    orphan_signal: int = signal.SIGKILL


class Child:
    """A running process of a part."""

    def __init__(self, part: Part) -> None:
        """Start it; its output is appended to the part's log.

        Raises:
            PartFailed: the program cannot be run at all.
        """
        self.part = part
        part.log.parent.mkdir(parents=True, exist_ok=True)
        with part.log.open("ab") as output:
            try:
                self._process = subprocess.Popen(
                    [str(word) for word in part.argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=settings.child_environment(part.environment),
                    start_new_session=True,
                    preexec_fn=_die_with_parent(part.orphan_signal),
                )
            except OSError as error:
                raise PartFailed(f"{part.name} cannot be started: {error}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to stop; harmless when it has ended."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, within_s: float) -> None:
        """Wait for a process that was asked to stop, then kill whatever is left of its group."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            pass  # the kill below is the answer
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole group: also to what a dead leader left behind. Reaps the leader."""
        with suppress(ProcessLookupError):  # the group is empty, as it should be
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _die_with_parent(number: int) -> Callable[[], None] | None:
    """What the child does between fork and exec. Linux only: elsewhere `triptych down` cleans up after a kill -9."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: after fork only the call itself is safe
    parent = os.getpid()

    def in_child() -> None:
        libc.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the request was in place
            os._exit(1)

    return in_child


def log_tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log; empty when there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def failure(part: Part, what: str) -> PartFailed:
    tail = log_tail(part.log)
    return PartFailed(f"{part.name} {what}; the end of {part.log}:\n{tail or '(empty)'}")


def wait_ready(child: Child) -> None:
    """Wait until the part serves.

    Raises:
        PartFailed: it ended, or did not serve within its limit.
    """
    part = child.part
    deadline = time.monotonic() + part.start_limit_s
    while not part.ready():
        code = child.exit_code()
        if code is not None:
            raise failure(part, f"ended with code {code} before it served")
        if time.monotonic() > deadline:
            raise failure(part, f"did not serve within {part.start_limit_s:.0f} s")
        time.sleep(POLL_S)


@contextmanager
def running(part: Part) -> Iterator[Child]:
    """The part, serving, for as long as the block lasts.

    Raises:
        PartFailed: it did not come up.
    """
    child = Child(part)
    try:
        wait_ready(child)
        yield child
    finally:
        child.terminate()
        child.end(part.stop_limit_s)
