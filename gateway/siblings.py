"""What the gateways of one port ask of each other: a client does not choose which of them it reaches.

Each is asked on its private port; what comes in there is about that one alone.
"""

import asyncio
import logging
from collections.abc import Mapping

from litestar.types import Scope

from gateway.member import LOOPBACK
from infra.exposition import merged

log = logging.getLogger(__name__)

ANSWER_LIMIT_S = 1.0
MOST_ANSWER_BYTES = 16 << 20
LABEL = "gateway"
UP = """# HELP triptych_gateway_up Whether this gateway of the port has told its metrics
# TYPE triptych_gateway_up gauge
triptych_gateway_up %d
"""


class Siblings:
    """`others`: id and private port of each; a gateway that is alone on its port has none."""

    def __init__(self, me: str = "", private_port: int = 0, others: Mapping[str, int] | None = None) -> None:
        self._me = me
        self._private_port = private_port
        self._others = others or {}
        self._silent: set[str] = set()  # as far as the log knows

    def answer_for(self, scope: Scope) -> bool:
        """Whether this request is for all gateways of the port."""
        server = scope["server"]
        return bool(self._others) and server is not None and server[1] != self._private_port

    async def metrics(self, own: bytes) -> bytes:
        """The pages of all; one that does not answer is down, and its samples are missing."""
        answers = await asyncio.gather(*(self._ask(one, "/metrics") for one in self._others))
        pages = {self._me: UP % 1 + own.decode()}
        for name, page in zip(self._others, answers, strict=True):
            pages[name] = UP % 0 if page is None else UP % 1 + page.decode()
        return merged(pages, LABEL).encode()

    async def first(self, path: str) -> bytes | None:
        """The body of whoever has an answer."""
        answers = await asyncio.gather(*(self._ask(one, path) for one in self._others))
        return next((one for one in answers if one is not None), None)

    async def _ask(self, name: str, path: str) -> bytes | None:
        """None when it does not answer, or not with a 200."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                answer = await _get(self._others[name], path)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:  # a TimeoutError is an OSError
            if name not in self._silent:
                log.warning("gateway %s does not answer on its private port: %s", name, error or "no answer in time")
            self._silent.add(name)
            return None
        self._silent.discard(name)
        return answer


async def _get(port: int, path: str) -> bytes | None:
    """Raises ValueError when the answer is longer than MOST_ANSWER_BYTES."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {LOOPBACK}\r\nconnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")),
            b"0",
        )
        if int(length) > MOST_ANSWER_BYTES:
            raise ValueError(f"{int(length)} bytes")
        body = await reader.readexactly(int(length))
        return body if head.startswith(b"HTTP/1.1 200") else None
    finally:
        writer.close()
