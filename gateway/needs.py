"""What one request has asked of encoders and decoders: what its waiting for their pools goes by."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from gateway.parts import Parts
from infra.ports import Results
from schemas.events import Part
from schemas.jobs import Head
from topics import names


class Needs:
    """Implements media_pools.Waiting."""

    def __init__(self, head: Head, results: Results) -> None:
        self._head = head
        self._results = results
        self._asked: dict[str, Callable[[], Awaitable[bool]]] = {}  # of which pool -> whether it still has to be done
        self._parts: Parts | None = None

    def ask(self, pool: str, undone: Callable[[], Awaitable[bool]]) -> None:
        """Something has been asked of that pool. `undone` may raise Unavailable."""
        self._asked[pool] = undone

    def ask_for_all(self, pool: str) -> None:
        """All of the work has been asked of that pool: it is done when the request has ended."""
        self.ask(pool, partial(self._are_wanted, [self._head]))

    def follow(self, parts: Parts) -> None:
        """These are asked of decoders as they come."""
        self._parts = parts

    def awaited(self) -> Collection[str]:
        return self._asked.keys() | {names.decode(part.kind) for part in self._open()}

    async def still_awaits(self, pool: str) -> bool:
        if (undone := self._asked.get(pool)) is None:
            return await self._are_wanted([self._head_of(part) for part in self._open() if _asked_of(pool, part)])
        if await undone():
            return True
        self._asked.pop(pool, None)  # no request asks the same pool twice
        return False

    def _open(self) -> Sequence[Part]:
        return self._parts.open if self._parts is not None else ()

    def _head_of(self, part: Part) -> Head:
        return msgspec.structs.replace(self._head, request_id=part.request_id, parent=self._head.request_id)

    async def _are_wanted(self, heads: Iterable[Head]) -> bool:
        """Whether any of them has neither ended nor been cancelled, whatever of that has been read here."""
        return "wanted" in await self._results.wishes(list(heads))


def _asked_of(pool: str, part: Part) -> bool:
    return names.decode(part.kind) == pool
