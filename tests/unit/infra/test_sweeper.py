"""The sweeper, where the store refuses, and while others use what it sweeps."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import pytest

from infra.clock import ManualClock
from infra.faults import Unavailable
from infra.memory_blobs import MemoryBlobs
from infra.memory_notes import MemoryArtifactNotes
from infra.retention import Kind
from infra.settings import Settings
from infra.sweeper import MOST_FAILURES, Stored, Sweeper, Swept
from schemas.media import Artifact, Slot
from topics.artifacts import Artifacts

NOW = 1_800_000_000.0
HOUR_S = 3_600


class Refusing:
    """Has pages of 400 objects each, and an unfinished upload; deletes those only whose keys end with 0."""

    def __init__(self, pages: int = 5) -> None:
        self.pages = pages
        self.asked: list[str] = []

    async def listing(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        for page in range(self.pages):
            yield [Stored(f"{prefix}{page}.{number}", NOW - HOUR_S, 10) for number in range(400)]

    async def unfinished(self, prefix: str) -> AsyncGenerator[list[Stored]]:
        yield [Stored(f"{prefix}begun", NOW - HOUR_S, 0, "upload")]

    async def discard(self, stored: Sequence[Stored]) -> dict[str, str]:
        self.asked += [one.key for one in stored]
        return {one.key: "AccessDenied" for one in stored if not one.key.endswith("0")}


def sweeper(store: object, *kinds: Kind) -> Sweeper:
    clock = ManualClock(NOW)
    return Sweeper(store, MemoryArtifactNotes(clock), kinds, clock)  # type: ignore[arg-type]  # as much of one as is used


async def test_each_object_that_could_not_be_deleted_is_told_with_the_reason() -> None:
    store, told = Refusing(pages=2), list[tuple[int, int]]()

    def tell(swept: Swept) -> None:
        told.append((swept.objects, swept.expired))

    [found] = await sweeper(store, Kind("a/", 60)).sweep(tell=tell)
    assert told == [(400, 400), (800, 800), (801, 801)]
    assert found.failures == {key: "AccessDenied" for key in store.asked if not key.endswith("0")}
    assert found.size_bytes == 8_000


async def test_a_store_that_refuses_everything_is_left_alone_but_other_kinds_are_swept() -> None:
    store = Refusing()
    found = await sweeper(store, Kind("a/", 60), Kind("b/", 2 * HOUR_S), Kind("c/", 60)).sweep()
    assert [len(one.failures) >= MOST_FAILURES for one in found] == [True, False, True]
    assert "a/2.399" in store.asked and "a/3.0" not in store.asked
    assert not [key for key in store.asked if key.startswith("b/")]


async def test_a_store_that_does_not_answer_is_an_error() -> None:
    class Away(Refusing):
        async def discard(self, stored: Sequence[Stored]) -> dict[str, str]:
            raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        await sweeper(Away(), Kind("a/", 60)).sweep()


TTL_S = 1_000


class SlowBlobs(MemoryBlobs):
    """Others get on with their work between any two steps."""

    async def hold(self, key: str) -> bool:
        await asyncio.sleep(0)
        return await super().hold(key)

    async def discard(self, stored: Sequence[Stored]) -> dict[str, str]:
        await asyncio.sleep(0)
        return await super().discard(stored)


@pytest.mark.parametrize("seed", range(5))
async def test_sweeps_take_nothing_away_that_a_request_has_been_told_of(seed: int) -> None:
    """Thousands of requests over weeks of a clock that we turn, each of which needs what it has found for a while."""
    dice, clock = random.Random(seed), ManualClock(NOW)
    blobs, notes = SlowBlobs(Settings(media_ttl_s=TTL_S), clock), MemoryArtifactNotes(clock)
    one = Sweeper(blobs, notes, [Kind("media/", TTL_S), Kind("artifacts/", TTL_S)], clock)
    world = _World(blobs, notes, clock)
    for _ in range(400):
        clock.advance(dice.choice([1, 10, TTL_S / 10, TTL_S / 3]))
        world.promises = [(until, keys) for until, keys in world.promises if until > clock.now()]
        # Two in three requests are about the few that everybody asks for, the others about one in a thousand.
        items = [dice.randrange(4) if dice.random() < 0.66 else dice.randrange(1_000) for _ in range(5)]
        await one.sweep()
        await asyncio.gather(*(world.request(item) for item in items))
        await one.sweep()
        for _, keys in world.promises:
            assert all([await blobs.exists(key) for key in keys])
    assert world.found > 100
    assert len(blobs._objects) < 200  # of the thousand


class _World:
    def __init__(self, blobs: SlowBlobs, notes: MemoryArtifactNotes, clock: ManualClock) -> None:
        self._blobs = blobs
        self._notes = notes
        self._clock = clock
        self._artifacts = Artifacts(blobs, notes)
        self.promises: list[tuple[float, list[str]]] = []
        self.found = 0

    async def request(self, item: int) -> None:
        ref = await self._blobs.put_stream("media", _stream(str(item).encode()), "image/png")
        key = f"artifacts/e/{ref.digest}.safetensors"
        self._notes.forget()  # they live for a moment only
        [there] = await self._artifacts.lookup([Slot(0, "image", "vision", "m/vision", ref, key, "p")])
        if there is None:
            await self._artifacts.store(key, Artifact("text", "e", ref.digest, text="seen"))
        self.found += there is not None
        self.promises.append((self._clock.now() + TTL_S / 2, [ref.key, key]))


async def _stream(data: bytes) -> AsyncIterator[bytes]:
    yield data
