"""Deletes from the object store what has been kept for long enough. Any number may run at once, in any processes."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec

from infra import retention
from infra.artifact_ports import ArtifactNotes
from infra.clock import Clock
from infra.retention import Kind

# Of one kind; then nothing more is tried of it. A store that refuses everything shall not be asked a million times.
MOST_FAILURES = 1_000


class Stored(msgspec.Struct, frozen=True):
    """An object, or with an `upload_id` the beginning of one, by its store's clock (unix seconds)."""

    key: str
    written_at: float
    size_bytes: int
    upload_id: str = ""


class Sweepable(Protocol):
    """The object store, as the sweeper sees it. Every verb raises Unavailable when it gives no answer in time, and
    Refused when it refuses."""

    def listing(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        """The objects whose keys begin so, in pages of at most 1,000. What a page tells of may be deleted at once."""
        ...

    def unfinished(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        """The same of uploads in parts that were begun and neither completed nor given up."""
        ...

    async def discard(self, stored: Sequence[Stored]) -> dict[str, str]:
        """Delete at most 1,000 of them; what is gone already is no failure. Why it failed, by key."""
        ...


class Swept(msgspec.Struct):
    """What was found of one kind so far. With `dry_run` nothing of what has `expired` was deleted."""

    prefix: str
    objects: int = 0
    size_bytes: int = 0
    expired: int = 0
    expired_bytes: int = 0
    failures: dict[str, str] = {}

    def add(self, page: Sequence[Stored], expired: Sequence[Stored]) -> None:
        self.objects += len(page)
        self.size_bytes += sum(one.size_bytes for one in page)
        self.expired += len(expired)
        self.expired_bytes += sum(one.size_bytes for one in expired)


class Sweeper:
    """One request to the store at a time: there is no hurry, and others use it."""

    def __init__(self, store: Sweepable, notes: ArtifactNotes, kinds: Sequence[Kind], clock: Clock) -> None:
        self._store = store
        self._notes = notes
        self._kinds = kinds
        self._clock = clock

    async def sweep(self, *, dry_run: bool = False, tell: Callable[[Swept], None] = lambda _: None) -> list[Swept]:
        """All kinds, one after the other; `tell` is called after each page.

        Raises:
            Unavailable: the store, or Redis, does not answer. Refused: the store refuses.
        """
        found = []
        for kind in self._kinds:
            swept = Swept(kind.prefix)
            for source in (self._store.listing, self._store.unfinished):
                await self._sweep(kind, source(kind.prefix), swept, dry_run, tell)
            found.append(swept)
        return found

    async def _sweep(
        self,
        kind: Kind,
        pages: AsyncGenerator[list[Stored]],
        swept: Swept,
        dry_run: bool,
        tell: Callable[[Swept], None],
    ) -> None:
        async with aclosing(pages):
            async for page in pages:
                expired = [one for one in page if self._clock.now() - one.written_at > kind.ttl_s]
                swept.add(page, expired)
                if expired and not dry_run:
                    swept.failures |= await self._discard(expired)
                tell(swept)
                if len(swept.failures) >= MOST_FAILURES:
                    return

    async def _discard(self, expired: Sequence[Stored]) -> dict[str, str]:
        failures = await self._store.discard(expired)
        for one in expired:
            if one.key.startswith(retention.ARTIFACTS):
                await self._notes.drop(one.key)  # whoever asks next shall look at the store
        return failures
