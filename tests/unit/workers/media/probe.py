"""Plays a decoding process that a file has taken over: confined as one, it tries what it should not be able to do.

`python -m tests.unit.workers.media.probe MEMORY_BYTES PARENT_PID TASK`. The task is JSON: see `Task`. After each ask
that it is sent (of which it reads nothing but one byte) it tries everything and answers with one line of JSON.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from workers.media import child, confine

REFUSED = "refused"
_PR_SET_PDEATHSIG, _PTRACE_ATTACH, _PTRACE_DETACH = 1, 16, 17


class Task(msgspec.Struct, frozen=True):
    victim: str = ""  # a file that anybody may write to and run
    folder: str = ""  # that anybody may write to
    tcp_port: int = 0  # somebody listens there, on 127.0.0.1
    udp_port: int = 0
    refused: list[confine.Layer] = []  # a kernel that does not permit these
    then: str = ""  # after that: "hang", "raise", "nonsense"


def attempts(task: Task, memory_bytes: int, parent: int) -> dict[str, Callable[[], object]]:
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.mmap(-1, mmap.PAGESIZE)
    return {
        "read a file": lambda: Path("/etc/passwd").read_bytes(),
        "list a folder": lambda: os.listdir("/"),
        "look at a file": lambda: os.stat(task.victim),
        "read the worker's environment": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "read the worker's memory": lambda: open(f"/proc/{parent}/mem", "rb").close(),
        "write a file": lambda: Path(task.folder, "made").write_bytes(b"x"),
        "write to a file": lambda: Path(task.victim).write_bytes(b"x"),
        "change a file's mode": lambda: os.chmod(task.victim, 0o600),
        "remove a file": lambda: os.unlink(task.victim),
        "make a folder": lambda: os.mkdir(Path(task.folder, "folder")),
        "make a file in memory": lambda: os.memfd_create("x"),
        "connect over TCP": lambda: _inet(socket.SOCK_STREAM).connect(("127.0.0.1", task.tcp_port)),
        "send over UDP": lambda: _inet(socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", task.udp_port)),
        "listen": lambda: _inet(socket.SOCK_STREAM).bind(("127.0.0.1", 0)),
        "make a Unix socket": lambda: socket.socketpair(),
        "make a pipe": os.pipe,
        "fork": _fork,
        "spawn a program": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
        "become a program": lambda: os.execv("/nowhere/at/all", ["x"]),
        "signal the worker": lambda: os.kill(parent, 0),
        "trace the worker": lambda: _trace(libc, parent),
        "read the worker's memory by call": lambda: _checked(libc, _read_memory_of(libc, parent)),
        "leave its namespaces": lambda: _checked(libc, libc.unshare(0x1000_0000)),
        "mount": lambda: _checked(libc, libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
        "become root": lambda: os.setuid(0),
        "outlive the worker": lambda: _checked(libc, libc.prctl(_PR_SET_PDEATHSIG, 0)),
        "make memory executable": lambda: _checked(libc, _executable(libc, page)),
        "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_AS, (memory_bytes * 2,) * 2),
        "take all memory": lambda: bytearray(memory_bytes),
    }


def _inet(kind: socket.SocketKind) -> socket.socket:
    return socket.socket(socket.AF_INET, kind)


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _trace(libc: ctypes.CDLL, pid: int) -> None:
    _checked(libc, libc.ptrace(_PTRACE_ATTACH, pid, None, None))
    os.waitpid(pid, 0)
    libc.ptrace(_PTRACE_DETACH, pid, None, None)


def _checked(libc: ctypes.CDLL, result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _read_memory_of(libc: ctypes.CDLL, pid: int) -> int:
    """EFAULT, for its address that we do not know, would mean that it is allowed."""
    here = ctypes.create_string_buffer(8)
    parts = _Part(ctypes.addressof(here), 8), _Part(ctypes.addressof(here), 8)
    result: int = libc.process_vm_readv(pid, ctypes.byref(parts[0]), 1, ctypes.byref(parts[1]), 1, 0)
    return 0 if result < 0 and ctypes.get_errno() == errno.EFAULT else result


def _executable(libc: ctypes.CDLL, page: mmap.mmap) -> int:
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result: int = libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, 0x7)
    return result


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (OSError, ValueError, MemoryError) as error:
        return REFUSED if not isinstance(error, OSError) or error.errno in _NOT_ALLOWED else str(error)
    return "done"


# Not ENOENT: who can be told that there is nothing by that name has looked.
_NOT_ALLOWED = {errno.EPERM, errno.EACCES, errno.EMFILE, errno.ENETUNREACH, errno.ESRCH, errno.EFBIG, errno.ENOSYS}


def open_descriptors() -> list[int]:
    """By touching them: nothing else tells, when no call but these is allowed."""
    found = []
    for descriptor in range(1024):
        for touch in (lambda at: os.readv(at, [bytearray(0)]), lambda at: os.write(at, b"")):
            try:
                touch(descriptor)
            except OSError as error:
                if error.errno == errno.EBADF:
                    continue
            found.append(descriptor)
            break
    return found


def _with_a_thread() -> str:
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append("done"))
    thread.start()
    thread.join(5)
    return heard[0]


def main(memory_bytes: int, parent: int, task: Task) -> None:
    steps = confine.steps

    def refuse() -> None:
        raise PermissionError(errno.EPERM, "as the test wants it")

    confine.steps = lambda *all: {  # type: ignore[assignment]
        layer: refuse if layer in task.refused else step for layer, step in steps(*all).items()
    }
    tried = attempts(task, memory_bytes, parent)
    environment = dict(os.environ)
    asks, answers = child.begin(memory_bytes, parent)
    if task.then == "raise":
        raise RuntimeError("probe \x1b[31m was told to")
    while asks.read(1):
        if task.then == "hang":
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            answers.write(b"\0")
            while True:
                time.sleep(1)
        if task.then == "nonsense":
            answers.write(b"\xff\xff\xff\x7f" + bytes(1000))
            continue
        found = {name: outcome(attempt) for name, attempt in tried.items()}
        told = {"found": found, "open": open_descriptors(), "environment": environment, "thread": _with_a_thread()}
        told["pipes"] = [0, 1, 2, asks.fileno(), answers.fileno()]
        line = memoryview(json.dumps(told).encode() + b"\n")
        while line:
            line = line[answers.write(line) or 0 :]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=Task))
