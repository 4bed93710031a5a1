"""Decodes in processes of their own.

Media libraries are large, written in C and fed by strangers: an item that makes one crash, hang or ask for all the
memory must cost that item, and neither the worker nor the requests beside it. A process is started once and decodes
many items; handing over a picture of 12 megapixels costs some 20 ms, far less than decoding it.
"""

import logging
import queue
import signal
import subprocess
import sys
from io import RawIOBase
from pathlib import Path
from typing import cast

from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from workers.encoder import Decoded, MediaFault
from workers.media import wire

log = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[2]
_ITEMS = 500  # then a process is replaced, with whatever its libraries have leaked
_CLOSE_S = 1.0


class Decoders:
    """At most `processes` of them, started when needed. `decode` may be called from any number of threads."""

    def __init__(self, processes: int, *, limit_s: float = 60.0, memory_bytes: int = 4 << 30) -> None:
        """An item may take `limit_s`, and a process `memory_bytes` of address space."""
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._free: queue.SimpleQueue[_Child | None] = queue.SimpleQueue()
        self._processes = processes
        for _ in range(processes):
            self._free.put(None)

    def decode(self, kind: MediaKind, pool: EncoderKind, data: bytes, limits: MediaLimits) -> Decoded:
        """As `read.decode`; blocks while all processes are busy, each for twice the time limit at most.

        Raises:
            MediaFault
        """
        ask = wire.Ask(kind, pool, limits, self._limit_s, len(data))
        try:
            return self._decode(ask, data)
        except _Died as first:
            # An item before this one may have left the process damaged, so this one gets a new one.
            log.warning("a decoder of %s died: %s; trying again", kind, first)
        try:
            return self._decode(ask, data)
        except _Died as again:
            log.warning("a decoder of %s died: %s", kind, again)
            raise MediaFault("media_unreadable", f"the {kind} is broken") from again

    def _decode(self, ask: wire.Ask, data: bytes) -> Decoded:
        child = self._free.get()
        try:
            child = child or _Child(self._memory_bytes)
            return child.decode(ask, data)
        finally:
            if child is not None and child.items >= _ITEMS:
                child.close()
            self._free.put(child if child is not None and child.is_open else None)

    def close(self) -> None:
        """Waits for what is being decoded."""
        for _ in range(self._processes):
            child = self._free.get()
            if child is not None:
                child.close()


class _Died(Exception):
    """Not by the time limit."""


class _Child:
    def __init__(self, memory_bytes: int) -> None:
        self.items = 0
        self.is_open = True
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workers.media.child", str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # Nothing of the worker's own: it holds credentials.
            env={"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the worker, which lets items finish
        )
        self._asks = cast("RawIOBase", self._process.stdin)  # bufsize=0
        self._answers = cast("RawIOBase", self._process.stdout)

    def decode(self, ask: wire.Ask, data: bytes) -> Decoded:
        self.items += 1
        try:
            wire.send_ask(self._asks, ask, data)
            return wire.receive_answer(self._answers)
        except (EOFError, BrokenPipeError) as error:
            self.close()
            if self._process.returncode == -signal.SIGALRM:
                raise MediaFault("media_unreadable", f"the {ask.kind} takes too long to decode") from error
            raise _Died(f"exit code {self._process.returncode}") from error

    def close(self) -> None:
        self.is_open = False
        self._asks.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_CLOSE_S)
        self._answers.close()
