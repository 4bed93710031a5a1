"""The system calls that decoding needs. Behind this filter all others fail: no file is opened, no socket made, no
program or process started, and no memory made executable.

libseccomp knows the calls' numbers and builds the filter; every Debian has it, because apt needs it. It is called
directly: its one binding that installs without a compiler, pyseccomp, had its last release in 2021.
"""

import ctypes
import errno
import os

_LIBRARY = "libseccomp.so.2"

_MEMORY = ("brk", "madvise", "mremap", "munmap")
_THREADS = ("exit", "exit_group", "futex", "futex_time64", "gettid", "getpid", "rseq", "sched_getaffinity",
            "sched_yield", "set_robust_list")  # fmt: skip
_SIGNALS = ("restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "setitimer", "sigaltstack")
_TIME = ("clock_getres", "clock_gettime", "clock_gettime64", "clock_nanosleep", "clock_nanosleep_time64", "getrusage",
         "gettimeofday", "nanosleep", "time")  # fmt: skip
_PIPES = ("read", "readv", "write", "writev")
_OTHERS = ("getrandom", "sysinfo")
ALLOWED = _MEMORY + _THREADS + _SIGNALS + _TIME + _PIPES + _OTHERS

_PROT_EXEC = 0x4  # asm-generic/mman-common.h
_CLONE_THREAD = 0x1_0000  # linux/sched.h
_PR_SET_NAME = 15  # linux/prctl.h

# seccomp.h of libseccomp
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000
_MASKED_EQUAL = 7
_FOR_ALL_THREADS = 4  # SCMP_FLTATR_CTL_TSYNC
_NO_SUCH_CALL = -1


class _Condition(ctypes.Structure):
    """Argument number `argument`, and-ed with `mask`, is `value`."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


# A mask of 32 bits: the C library passes some of these as int, with anything in the upper half.
_CONDITIONS = {
    "mmap": _Condition(2, _MASKED_EQUAL, _PROT_EXEC, 0),
    "mprotect": _Condition(2, _MASKED_EQUAL, _PROT_EXEC, 0),
    "clone": _Condition(0, _MASKED_EQUAL, _CLONE_THREAD, _CLONE_THREAD),
    "prctl": _Condition(0, _MASKED_EQUAL, 0xFFFF_FFFF, _PR_SET_NAME),
}


class Filter:
    """Made while libraries can be opened, put in force when nothing can be any more."""

    def __init__(self) -> None:
        """
        Raises:
            OSError: there is no libseccomp here.
        """
        self._library = ctypes.CDLL(_LIBRARY)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._filter = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(_ERRNO | errno.EPERM)))
        if not self._filter:
            raise OSError(errno.ENOMEM, "seccomp_init")
        for name in ALLOWED:
            self._add(_ALLOW, name)
        for name, condition in _CONDITIONS.items():
            self._add(_ALLOW, name, condition)
        # Its flags lie in memory, where no filter can look; the C library then makes threads with `clone`.
        self._add(_ERRNO | errno.ENOSYS, "clone3")

    def enforce(self) -> None:
        """For good, on all threads.

        Raises:
            OSError: the kernel has no seccomp, or may not be asked for it.
        """
        self._check(self._library.seccomp_attr_set(self._filter, _FOR_ALL_THREADS, ctypes.c_uint32(1)))
        self._check(self._library.seccomp_load(self._filter))

    def _add(self, action: int, name: str, *conditions: _Condition) -> None:
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number == _NO_SUCH_CALL:  # an older libseccomp: then the call stays forbidden
            return
        array = (_Condition * len(conditions))(*conditions)
        add = self._library.seccomp_rule_add_array
        self._check(add(self._filter, ctypes.c_uint32(action), number, len(conditions), array))

    @staticmethod
    def _check(result: int) -> None:
        if result < 0:
            raise OSError(-result, f"libseccomp: {os.strerror(-result)}")
