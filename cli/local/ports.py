"""Loopback ports: a free one to give to a service, and whether one is taken."""

import socket

LOOPBACK = "127.0.0.1"


def free() -> int:
    """A port nobody listens on now. Another process may take it before it is used; callers notice at start."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def taken(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could not listen there. Binds as servers do, so connections in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def preferred(port: int) -> int:
    """The well-known port where it is free, so that the default settings fit the local stack; else any free one."""
    return free() if taken(port) else port


def reachable(host: str) -> str:
    """The host to connect to for a server that listens on `host`, which may stand for all addresses."""
    return LOOPBACK if host in ("0.0.0.0", "::", "") else host
