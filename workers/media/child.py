"""A decoding process: `python -m workers.media.child MEMORY_BYTES`. It knows no secrets, and dies rather than hang."""

import os
import resource
import signal
import sys

from workers.encoder import Decoded, MediaFault
from workers.media import wire
from workers.media.read import decode


def serve(memory_bytes: int) -> None:
    """Answer until the worker goes away."""
    asks, answers = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    sys.stderr = os.fdopen(os.dup(2), "w")  # for errors of ours
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # what a library prints is no answer, and for nobody's log: it repeats the media's words
        os.dup2(nowhere, descriptor)
    for what, limit in _LIMITS.items():
        resource.setrlimit(what, (limit, limit))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
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


_LIMITS = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: 64}


def _answer(ask: wire.Ask, data: bytes) -> Decoded | MediaFault:
    try:
        return decode(ask.kind, ask.pool, data, ask.limits)
    except MediaFault as fault:
        return fault
    except MemoryError:
        return MediaFault("media_too_large", f"the {ask.kind} needs too much memory to decode")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
