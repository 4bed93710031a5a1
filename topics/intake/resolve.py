"""Host name -> addresses, on threads of its own: a name server that hangs must not hold up other work's threads."""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from topics.intake.faults import MediaFault
from topics.intake.places import Address

THREADS = 16

_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_FAIL)


class Resolver(Protocol):
    async def addresses(self, host: str) -> list[Address]:
        """All addresses of a name, the preferred one first; none when there is no such name.

        Raises:
            MediaFault: media_unreachable, when the name server does not answer.
        """
        ...

    def close(self) -> None:
        """Does not wait for look-ups under way."""
        ...


class SystemResolver:
    """What the machine is set up to use."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolve")

    async def addresses(self, host: str) -> list[Address]:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            )
        except socket.gaierror as error:
            if error.errno in _NO_SUCH_NAME:
                return []
            raise MediaFault("media_unreachable", "its host's name could not be looked up") from error
        return [ipaddress.ip_address(sockaddr[0]) for _, _, _, _, sockaddr in found]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
