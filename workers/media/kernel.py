"""Calls of the Linux kernel that Python 3.11 has no function for. Elsewhere each raises OSError (ENOSYS).

The numbers are the kernel's ABI, which never changes; each names the header of include/uapi/linux that it is from.
"""

import ctypes
import errno
import os

# sched.h
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWNET = 0x4000_0000

# prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_LINUX_CAPABILITY_VERSION_3 = 0x2008_0522  # capability.h

# asm-generic/unistd.h: calls newer than 2019 have one number on all architectures but Alpha.
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_RESTRICT_SELF = 446

# landlock.h
_LANDLOCK_CREATE_RULESET_VERSION = 1
# Rights that a ruleset may be about, by the ABI that brought them: so many of the lowest bits.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
_NETWORK_RIGHTS = {4: 2}  # to bind and to connect TCP
_SCOPES = {6: 2}  # abstract Unix sockets of others, signals to others


def unshare(flags: int) -> None:
    _call("unshare", ctypes.c_int(flags))


def die_with_parent(signal_number: int) -> None:
    """The kernel sends it when the thread that started this process ends. Changing the user undoes it."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def hide_from_peers() -> None:
    """No core dump, and /proc/<pid>/{mem,environ,fd,...} and ptrace for root only. Changing the user undoes it."""
    _prctl(_PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Of the calling thread: all of them, for good."""
    header = (ctypes.c_uint32 * 2)(_LINUX_CAPABILITY_VERSION_3, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


def deny_files_and_sockets() -> None:
    """Landlock with a ruleset that is about everything and allows nothing; needs "no new privileges".

    What is open stays open. Of the calling thread and those that it starts.
    """
    abi = _call("syscall", *_longs(_SYS_LANDLOCK_CREATE_RULESET, 0, 0, _LANDLOCK_CREATE_RULESET_VERSION))
    handled = (ctypes.c_uint64 * 3)(*(_rights(table, abi) for table in (_FILE_RIGHTS, _NETWORK_RIGHTS, _SCOPES)))
    size = ctypes.sizeof(handled)  # kernels that know a shorter struct take a longer one whose rest is zero
    ruleset = _call("syscall", ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET), handled, *_longs(size, 0))
    try:
        _call("syscall", *_longs(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _rights(table: dict[int, int], abi: int) -> int:
    return (1 << max((bits for since, bits in table.items() if since <= abi), default=0)) - 1


def _prctl(option: int, value: int) -> None:
    _call("prctl", ctypes.c_int(option), *_longs(value, 0, 0, 0))


def _longs(*values: int) -> list[ctypes.c_long]:
    """Variadic functions take what they are given at the width it has."""
    return [ctypes.c_long(value) for value in values]


def _call(name: str, *arguments: object) -> int:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(errno.ENOSYS, f"{name}: {os.strerror(errno.ENOSYS)}")
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    result: int = function(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
