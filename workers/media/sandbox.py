"""Decodes in processes of their own.

Media libraries are large, written in C and fed by strangers: an item that makes one crash, hang or ask for all the
memory must cost that item, and neither the worker nor the requests beside it. A process is started once and decodes
many items; handing over a picture of 12 megapixels costs some 20 ms, far less than decoding it.
"""

import logging
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from infra.clock import SystemClock
from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from workers.encoder import Decoded, MediaFault
from workers.media import wire
from workers.media.confine import Confinement
from workers.media.process import Died, Process, started

log = logging.getLogger(__name__)

_ITEMS = 500  # then a process is replaced, with whatever its libraries have leaked


class Decoders:
    """At most `processes` of them, started when needed. `decode` may be called from any number of threads."""

    def __init__(
        self,
        processes: int,
        *,
        limit_s: float = 60.0,
        memory_bytes: int = 4 << 30,
        count: Callable[[str, bool], None] | None = None,
    ) -> None:
        """An item may take `limit_s`, and a process `memory_bytes` of address space.

        `count` is told each layer of confinement, and whether it is in force, when that is known and when it changes.
        """
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._count = count
        self._confinement: Confinement | None = None
        self._clock = SystemClock()
        # A process dies with the thread that started it: this one stays until the end.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="decoders")
        self._free: queue.SimpleQueue[Process | None] = queue.SimpleQueue()
        self._processes = processes
        for _ in range(processes):
            self._free.put(None)

    def start(self) -> None:
        """The first process, before there is anything to decode: so that what confines it is known.

        Raises:
            Died: it cannot be started here.
        """
        process = self._free.get()
        try:
            process = process or self._new()
        finally:
            self._free.put(process)

    def decode(self, kind: MediaKind, pool: EncoderKind, data: bytes, limits: MediaLimits) -> Decoded:
        """As `read.decode`; blocks while all processes are busy, each for a second and twice the time limit
        at most.

        Raises:
            MediaFault
        """
        ask = wire.Ask(kind, pool, limits, self._limit_s, len(data))
        try:
            return self._decode(ask, data)
        except Died as first:
            # An item before this one may have left the process damaged, so this one gets a new one.
            log.warning("a decoder of %s died: %s; trying again", kind, first)
        try:
            return self._decode(ask, data, anew=True)
        except Died as again:
            log.warning("a decoder of %s died: %s", kind, again)
            raise MediaFault("media_unreadable", f"the {kind} is broken") from again

    def close(self) -> None:
        """Waits for what is being decoded."""
        for _ in range(self._processes):
            process = self._free.get()
            if process is not None:
                process.close()
        self._starter.shutdown()

    def _decode(self, ask: wire.Ask, data: bytes, *, anew: bool = False) -> Decoded:
        process = self._free.get()
        try:
            if process is not None and anew:
                process.close()
            if process is None or anew:
                process = None
                process = self._new()
            return process.decode(ask, data)
        finally:
            if process is not None and process.items >= _ITEMS:
                process.close()
            self._free.put(process if process is not None and process.is_open else None)

    def _new(self) -> Process:
        popen = self._starter.submit(started, "workers.media.child", self._memory_bytes).result()
        process = Process(popen, self._clock)
        if process.confinement != self._confinement:
            self._confinement = process.confinement
            self._tell(process.confinement)
        return process

    def _tell(self, confinement: Confinement) -> None:
        in_force = ", ".join(confinement.in_force)
        missing = ", ".join(f"{layer} ({why})" for layer, why in confinement.missing.items()) or "nothing"
        # Behind seccomp nothing is open that another layer would have to close.
        level = logging.WARNING if "seccomp" in confinement.missing else logging.INFO
        log.log(level, "media is decoded in processes confined by %s; not in force: %s", in_force, missing)
        if self._count is not None:
            for layer in (*confinement.in_force, *confinement.missing):
                self._count(layer, layer in confinement.in_force)
