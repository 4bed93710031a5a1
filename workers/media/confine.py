"""Takes from the calling process what decoding does not need, for good.

Every layer stands alone, because not every kernel or container permits each: what is in force is told, and what is
not, with the reason. What a process behind seccomp can still do, if a file takes it over: read what it is given, before
and afterwards, answer wrongly for the items that come after, use processors and memory up to its limits until the
worker's patience ends, and look for holes in the few system calls that are left to it.
"""

import errno
import os
import resource
import signal
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from workers.media import kernel
from workers.media.seccomp import Filter

Layer = Literal[
    "limits",  # of address space and processor time; no core dump, no byte into any file
    "network",  # a network namespace of its own, with nothing in it
    "user",  # a user and group of its own; other processes and files are somebody else's
    "capabilities",  # none
    "privileges",  # executing a set-user-id program would give none
    "hidden",  # from other processes of the same user: memory, environment, ptrace
    "parent",  # dies with the worker
    "landlock",  # no file by name, no TCP, no signal to others
    "descriptors",  # none can be opened any more: of files, sockets, anything
    "seccomp",  # the system calls in seccomp.ALLOWED, no others
]
Step: TypeAlias = Callable[[], None]

_CPU_S = 6 * 3_600  # of a whole life; an item gets far less, by the clock
_THREADS = 1_024  # decoders start some for each core
# From here to 2^31 no user is ever made by anybody: https://systemd.io/UIDS-GIDS/
_FIRST_OWN_USER = 0x7000_0000
_NOBODY = 65_534


class Confinement(msgspec.Struct, frozen=True, tag=True):
    """`missing`: layer to why it is not in force."""

    in_force: list[Layer]
    missing: dict[Layer, str]


def confine(memory_bytes: int, parent_pid: int) -> Confinement:
    """Afterwards nothing can be imported or opened any more. Call it while the process has one thread.

    Ends the process if its parent, `parent_pid`, is gone.
    """
    os.chdir("/")
    in_force: list[Layer] = []
    missing: dict[Layer, str] = {}
    for layer, step in steps(memory_bytes, parent_pid).items():
        try:
            step()
        except (OSError, ValueError) as error:  # ValueError: what `resource` says of limits
            missing[layer] = getattr(error, "strerror", None) or str(error)
        else:
            in_force.append(layer)
    return Confinement(in_force, missing)


def steps(memory_bytes: int, parent_pid: int) -> dict[Layer, Step]:
    """In the order in which they must be taken: each takes away what later ones do not need."""
    return {
        "limits": lambda: _limit(memory_bytes),
        "network": _leave_network,
        "user": _become_nobody,
        "capabilities": kernel.drop_capabilities,
        "privileges": kernel.forbid_new_privileges,
        "hidden": kernel.hide_from_peers,
        "parent": lambda: _die_with(parent_pid),
        "landlock": kernel.deny_files_and_sockets,
        "descriptors": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0)),
        "seccomp": _filter(),
    }


def _limit(memory_bytes: int) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CPU: _CPU_S,
        resource.RLIMIT_AS: memory_bytes,
    }
    for what, limit in limits.items():
        resource.setrlimit(what, (limit, limit))


def _leave_network() -> None:
    """Root may; others may where they may have a user namespace, in which they are root for a moment."""
    kernel.unshare(kernel.CLONE_NEWNET | (0 if os.geteuid() == 0 else kernel.CLONE_NEWUSER))


def _become_nobody() -> None:
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, "the worker does not run as root")
    os.setgroups([])
    user = _FIRST_OWN_USER + os.getpid()
    try:
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:  # a container whose users are few
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    else:
        resource.setrlimit(resource.RLIMIT_NPROC, (_THREADS, _THREADS))  # counts what the user has, which is this


def _die_with(parent_pid: int) -> None:
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent_pid:  # it went before we asked
        os._exit(1)


def _filter() -> Step:
    try:
        return Filter().enforce
    except OSError as error:
        reason = error

    def refuse() -> None:
        raise reason

    return refuse
