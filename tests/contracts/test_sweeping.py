"""The object store is swept, in memory and on an S3 server."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from infra.blob_stream import PART_BYTES
from infra.blobs import PAGE_OBJECTS, S3Blobs
from infra.clock import ManualClock, SystemClock
from infra.memory_blobs import MemoryBlobs
from infra.memory_notes import MemoryArtifactNotes
from infra.retention import Kind
from infra.settings import Settings
from infra.sweeper import Stored, Sweeper, Swept
from schemas.media import Artifact, Slot
from schemas.refs import BlobRef
from tests.contracts.test_blobs import left_behind, new_bucket, pieces, ref_of, settings_for
from tests.waiting import until
from topics.artifacts import Artifacts

TTL_S = 1_000
OBJECTS = PAGE_OBJECTS * 2 + 50
# What stores tell of their objects' ages may be rounded to seconds.
TICK_S = 1.1


class LaterClock(SystemClock):
    """As if so many seconds had passed."""

    later_s = 0.0

    def now(self) -> float:
        return super().now() + self.later_s


class World:
    def __init__(self, blobs: MemoryBlobs | S3Blobs, clock: LaterClock) -> None:
        self.blobs = blobs
        self.clock = clock  # of whoever uses the store
        self.notes = MemoryArtifactNotes(clock)

    async def put(self, *keys: str) -> None:
        turns = asyncio.Semaphore(8)

        async def put(key: str) -> None:
            async with turns:
                await self.blobs.put(msgspec.structs.replace(ref_of(key.encode()), key=key), key.encode())

        await asyncio.gather(*(put(key) for key in keys))

    async def sweep(self, *kinds: Kind, at: float, dry_run: bool = False) -> list[Swept]:
        return await Sweeper(self.blobs, self.notes, kinds, ManualClock(at)).sweep(dry_run=dry_run)

    async def keys(self) -> list[str]:
        return [one.key for one in await self.stored()]

    async def stored(self, prefix: str = "") -> list[Stored]:
        return [one async for page in self.blobs.listing(prefix) for one in page]

    async def pause(self) -> float:
        """A moment such that all that was written before it, and all that will be after it, is told apart from it."""
        now = self.clock.now()
        if isinstance(self.blobs, MemoryBlobs):
            self.clock.later_s += 2 * TICK_S  # it goes by this clock; a server goes by its own
        await until(lambda: self.clock.now() > now + 2 * TICK_S)
        return now + TICK_S


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.services)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    clock = LaterClock()
    if request.param == "memory":
        yield World(MemoryBlobs(Settings(media_ttl_s=TTL_S), clock), clock)
        return
    settings = msgspec.structs.replace(settings_for(request.getfixturevalue("s3"), new_bucket()), media_ttl_s=TTL_S)
    blobs = S3Blobs(settings, clock)
    await blobs.start()
    yield World(blobs, clock)
    await blobs.close()


async def test_what_is_past_its_time_is_deleted_and_nothing_else(world: World) -> None:
    await world.put("outputs/old/0.png", "uploads/old", "elsewhere/old")
    moment = await world.pause()
    await world.put("outputs/new/0.png")
    found = await world.sweep(Kind("outputs/", TTL_S), Kind("uploads/", 2 * TTL_S), at=moment + TTL_S)
    assert await world.keys() == ["elsewhere/old", "outputs/new/0.png", "uploads/old"]
    assert [(one.prefix, one.objects, one.expired, one.failures) for one in found] == [
        ("outputs/", 2, 1, {}),
        ("uploads/", 1, 0, {}),
    ]
    assert found[0].size_bytes == len("outputs/old/0.png" + "outputs/new/0.png")
    assert found[0].expired_bytes == len("outputs/old/0.png")


async def test_a_dry_run_tells_the_same_and_deletes_nothing(world: World) -> None:
    await world.put("outputs/old/0.png", "artifacts/e/old")
    await world.notes.put("artifacts/e/old", b"note")
    kinds = Kind("outputs/", TTL_S), Kind("artifacts/", TTL_S)
    later = world.clock.now() + TTL_S + TICK_S
    told = await world.sweep(*kinds, at=later, dry_run=True)
    assert await world.keys() == ["artifacts/e/old", "outputs/old/0.png"]
    assert await world.notes.get(["artifacts/e/old"]) == [b"note"]
    assert told == await world.sweep(*kinds, at=later)
    assert await world.keys() == []


async def test_whole_pages_of_old_and_new_objects_are_told_apart(world: World) -> None:
    old = [f"outputs/{number:04}/old" for number in range(OBJECTS)]
    new = [f"outputs/{number:04}/new" for number in range(0, OBJECTS, 100)]
    await world.put(*old)
    moment = await world.pause()
    await world.put(*new)
    [found] = await world.sweep(Kind("outputs/", TTL_S), at=moment + TTL_S)
    assert (found.objects, found.expired) == (len(old) + len(new), len(old))
    assert await world.keys() == new


async def test_an_artifact_that_is_gone_is_not_noted_any_more(world: World) -> None:
    await world.put("artifacts/e/old")
    moment = await world.pause()
    await world.put("artifacts/e/new")
    for key in ("artifacts/e/old", "artifacts/e/new"):
        await world.notes.put(key, b"note")
    await world.sweep(Kind("artifacts/", TTL_S), at=moment + TTL_S)
    assert await world.notes.get(["artifacts/e/old", "artifacts/e/new"]) == [None, b"note"]


async def test_several_may_sweep_at_once(world: World) -> None:
    await world.put(*(f"outputs/{number}/0.png" for number in range(OBJECTS)))
    later = world.clock.now() + TTL_S + TICK_S
    found = await asyncio.gather(*(world.sweep(Kind("outputs/", TTL_S), at=later) for _ in range(3)))
    assert all(one.failures == {} for [one] in found)
    assert await world.keys() == []


@pytest.mark.parametrize("later_s", [0, TTL_S * 0.6, TTL_S * 1.6], ids=["young", "past half its time", "past its time"])
async def test_what_is_held_stays_for_another_half_of_its_time(world: World, later_s: float) -> None:
    await world.put("media/held", "media/forgotten")
    begun = await world.pause()
    world.clock.later_s = later_s
    assert await world.blobs.hold("media/held")
    world.clock.later_s = 0
    written = {one.key: one.written_at for one in await world.stored("media/")}
    assert (written["media/held"] > begun) == bool(later_s)
    assert written["media/forgotten"] < begun
    assert await world.blobs.read("media/held", 100) == b"media/held"
    assert await world.keys() == ["media/forgotten", "media/held"]


async def test_what_is_not_there_cannot_be_held(world: World) -> None:
    assert not await world.blobs.hold("media/absent")
    assert await world.keys() == []


@pytest.mark.parametrize("size", [1_000, PART_BYTES + 1], ids=["short", "long"])
async def test_media_that_come_again_late_are_written_again(world: World, size: int) -> None:
    ref = await world.blobs.put_stream("media", pieces(bytes(size)), "image/png")
    begun = await world.pause()
    world.clock.later_s = TTL_S * 0.4
    await world.blobs.put_stream("media", pieces(bytes(size)), "image/png")
    [young] = await world.stored("media/")
    assert young.written_at < begun
    world.clock.later_s = TTL_S * 0.6
    assert await world.blobs.put_stream("media", pieces(bytes(size)), "image/png") == ref
    [again] = await world.stored("media/")
    assert again.written_at > begun
    assert await world.keys() == [ref.key]


@pytest.mark.services
@pytest.mark.parametrize("world", ["s3"], indirect=True)
async def test_an_object_that_is_held_keeps_its_type(world: World) -> None:
    assert isinstance(world.blobs, S3Blobs)
    ref = ref_of(b"a picture")
    await world.blobs.put(ref, b"a picture")
    world.clock.later_s = TTL_S * 0.6
    assert await world.blobs.hold(ref.key)
    head = await world.blobs._s3.head_object(Bucket=world.blobs._bucket, Key=ref.key)
    assert head["ContentType"] == ref.media_type
    assert await world.blobs.get(ref) == b"a picture"


@pytest.mark.services
@pytest.mark.parametrize("world", ["s3"], indirect=True)
async def test_uploads_that_nobody_finishes_are_given_up(world: World) -> None:
    assert isinstance(world.blobs, S3Blobs)
    s3, bucket = world.blobs._s3, world.blobs._bucket
    for key in ("staging/old", "staging/older", "elsewhere/old"):
        await s3.create_multipart_upload(Bucket=bucket, Key=key)
    moment = await world.pause()
    await s3.create_multipart_upload(Bucket=bucket, Key="staging/new")
    [found] = await world.sweep(Kind("staging/", TTL_S), at=moment + TTL_S)
    assert (found.objects, found.expired, found.failures) == (3, 2, {})
    _, uploads = await left_behind(world.blobs)
    assert sorted(uploads) == ["elsewhere/old", "staging/new"]


@pytest.mark.services
@pytest.mark.parametrize("world", ["s3"], indirect=True)
async def test_sweeping_an_upload_that_has_just_ended_is_no_failure(world: World) -> None:
    gone = Stored("staging/ended", 0.0, 0, upload_id=str(uuid.uuid4()))
    assert await world.blobs.discard([gone]) == {}


@pytest.mark.services
async def test_sweeping_without_pause_takes_nothing_away_that_is_in_use(request: pytest.FixtureRequest) -> None:
    """Media and artifacts live for 8 s here, and are in use for longer."""
    clock, ttl_s = SystemClock(), 8
    settings = msgspec.structs.replace(settings_for(request.getfixturevalue("s3"), new_bucket()), media_ttl_s=ttl_s)
    blobs, notes = S3Blobs(settings, clock), MemoryArtifactNotes(clock)
    await blobs.start()
    sweeper = Sweeper(blobs, notes, [Kind("media/", ttl_s), Kind("artifacts/", ttl_s)], clock)
    idle = [slot_of(bytes([number]), "idle") for number in range(20)]
    users = [User(blobs, notes, bytes([number]) * 1_000) for number in range(20)]
    for one in idle:
        await blobs.put(one.source, b"idle")
    begun = clock.monotonic()

    async def sweep() -> int:
        sweeps = 0
        while clock.monotonic() - begun < 2 * ttl_s:
            await sweeper.sweep()
            sweeps += 1
        return sweeps

    sweeping = asyncio.create_task(sweep())
    while not sweeping.done():
        await asyncio.gather(*(one.use() for one in users))
    assert sweeping.result() > 5
    assert [one.made for one in users] == [1] * len(users)
    assert all(one.uses > 2 for one in users)
    assert [await blobs.exists(one.source.key) for one in idle] == [False] * len(idle)
    await blobs.close()


class User:
    """Sends the same picture again and again."""

    def __init__(self, blobs: S3Blobs, notes: MemoryArtifactNotes, data: bytes) -> None:
        self._blobs = blobs
        self._notes = notes
        self._artifacts = Artifacts(blobs, notes)
        self._data = data
        self._slot = slot_of(data)
        self.uses = self.made = 0

    async def use(self) -> None:
        ref = await self._blobs.put_stream("media", pieces(self._data), "image/png")
        self._notes.forget()  # notes live longer than these objects
        [found] = await self._artifacts.lookup([self._slot])
        if found is None:
            self.made += 1
            await self._artifacts.store(self._slot.artifact, Artifact("text", "e", self._slot.source.digest, text="a"))
        assert await self._blobs.get(ref) == self._data
        assert await self._blobs.read(self._slot.artifact, 10_000)
        self.uses += 1


def slot_of(data: bytes, kind: str = "") -> Slot:
    source = ref_of(b"idle") if kind else ref_of(data)
    key = f"media/{data.hex()[:8]}{kind}" if kind else source.key
    source = BlobRef(key, source.digest, source.size_bytes)
    return Slot(0, "image", "vision", "m/vision", source, f"artifacts/e/{source.digest}.safetensors", "p")
