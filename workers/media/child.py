"""A decoding process: `python -m workers.media.child MEMORY_BYTES PARENT_PID`. It knows no secrets, can reach nothing
but its two pipes (workers/media/confine.py), and dies rather than hang."""

import os
import signal
import sys
import traceback
from io import RawIOBase
from types import TracebackType
from typing import cast

from workers.encoder import Decoded, MediaFault
from workers.media import wire
from workers.media.confine import confine
from workers.media.preload import preload
from workers.media.read import decode


def begin(memory_bytes: int, parent_pid: int) -> tuple[RawIOBase, RawIOBase]:
    """Give everything up and tell what that came to; returns where asks come from and where answers go."""
    preload()
    asks, answers = (cast("RawIOBase", os.fdopen(os.dup(at), mode, buffering=0)) for at, mode in ((0, "rb"), (1, "wb")))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (
        0,
        1,
        2,
    ):  # what a library prints is no answer, and for nobody's log: it repeats the media's words
        os.dup2(nowhere, descriptor)
    os.close(nowhere)

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        wire.send_raised(answers, "".join(traceback.format_exception(kind, error, trace)))

    sys.excepthook = tell
    wire.send_ready(answers, confine(memory_bytes, parent_pid))
    return asks, answers


def serve(asks: RawIOBase, answers: RawIOBase) -> None:
    """Answer until the worker goes away."""
    while True:
        try:
            ask, data = wire.receive_ask(asks)
        except EOFError:
            return
        # Left to the kernel, because Python's own timers do not run while a library does.
        signal.setitimer(signal.ITIMER_REAL, ask.limit_s)
        answer = _answer(ask, data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        wire.send_answer(answers, answer)


def _answer(ask: wire.Ask, data: bytes) -> Decoded | MediaFault:
    try:
        return decode(ask.kind, ask.pool, data, ask.limits)
    except MediaFault as fault:
        return fault
    except MemoryError:
        return MediaFault("media_too_large", f"the {ask.kind} needs too much memory to decode")


if __name__ == "__main__":
    serve(*begin(int(sys.argv[1]), int(sys.argv[2])))
