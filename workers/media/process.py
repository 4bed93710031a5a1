"""One decoding process as the worker sees it: started with nothing, given items, believed little, and ended."""

import os
import select
import signal
import subprocess
import sys
from io import RawIOBase
from pathlib import Path
from typing import cast

from infra.clock import Clock
from workers.encoder import Decoded, MediaFault
from workers.media import wire
from workers.media.confine import Confinement
from workers.media.pipe import OutOfTime, Pipe

_ROOT = Path(__file__).parents[2]
_START_S = 60.0
_CLOSE_S = 1.0


def started(module: str, memory_bytes: int, *arguments: str) -> "subprocess.Popen[bytes]":
    """`python -m module MEMORY_BYTES PARENT_PID ...`, with two pipes and, until it is confined, our standard error.

    It is killed when the thread that calls this ends.
    """
    return subprocess.Popen(
        # -P and -s: it imports from nowhere else, whatever lies in the working directory.
        [sys.executable, "-P", "-s", "-m", module, str(memory_bytes), str(os.getpid()), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        # Nothing of the worker's own: it holds credentials. One thread, because some layers confine only the caller's.
        env={"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd="/",
        start_new_session=True,  # Ctrl-C is for the worker, which lets items finish
    )


class Died(Exception):
    """A decoding process has ended, or had to be, and not by the time limit. Says why."""


class Process:
    """Of one thread at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", clock: Clock) -> None:
        """Waits until it is confined.

        Raises:
            Died
        """
        self.items = 0
        self.is_open = True
        self._process = process
        self._asks = Pipe(cast("RawIOBase", process.stdin), select.POLLOUT, clock)  # bufsize=0
        self._answers = Pipe(cast("RawIOBase", process.stdout), select.POLLIN, clock)
        self.confinement = self._ready()

    def decode(self, ask: wire.Ask, data: bytes) -> Decoded:
        """
        Raises:
            MediaFault
            Died
        """
        self.items += 1
        # It times itself; but whoever has taken it over can undo that.
        for pipe in (self._asks, self._answers):
            pipe.bound(2 * ask.limit_s + 1)
        try:
            wire.send_ask(self._asks, ask, data)
            return wire.receive_answer(self._answers, ask)
        except OutOfTime as error:
            self._end(at_once=True)
            raise _too_slow(ask) from error
        except (EOFError, BrokenPipeError, wire.Nonsense, wire.Broken) as error:
            self.close()
            if self._process.returncode == -signal.SIGALRM:
                raise _too_slow(ask) from error
            raise self._died(error) from error

    def close(self) -> None:
        """Lets it end by itself, for a moment."""
        self._end(at_once=False)

    def _ready(self) -> Confinement:
        self._answers.bound(_START_S)
        try:
            return wire.receive_ready(self._answers)
        except OutOfTime as error:
            self._end(at_once=True)
            raise Died("it did not start in time") from error
        except (EOFError, wire.Nonsense, wire.Broken) as error:
            self.close()
            raise self._died(error) from error

    def _died(self, error: Exception) -> Died:
        return Died(f"exit code {self._process.returncode} {error}".rstrip())

    def _end(self, *, at_once: bool) -> None:
        self.is_open = False
        self._asks.close()
        if at_once:
            self._process.kill()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_CLOSE_S)
        self._answers.close()


def _too_slow(ask: wire.Ask) -> MediaFault:
    return MediaFault("media_unreadable", f"the {ask.kind} takes too long to decode")
