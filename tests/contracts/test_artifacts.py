"""Artifacts in the object store, with and without notes about them."""

import hashlib
import uuid
from collections.abc import AsyncIterator

import pytest

from infra.artifact_notes import RedisArtifactNotes
from infra.blobs import S3Blobs
from infra.clock import SystemClock
from infra.memory_blobs import MemoryBlobs
from infra.memory_notes import MemoryArtifactNotes
from infra.ports import Blobs
from infra.redis_client import connect
from infra.settings import Secret, Settings
from schemas.media import Artifact, Slot
from schemas.refs import BlobRef
from topics.artifacts import NOTE_BYTES, Artifacts
from topics.fingerprints import artifact_key


class Watched:
    """A store that counts what is asked of it."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self.streams = 0

    def stream(self, key: str) -> object:
        self.streams += 1
        return self.blobs.stream(key)

    def __getattr__(self, name: str) -> object:
        return getattr(self.blobs, name)


class World:
    def __init__(self, blobs: Blobs, notes: object, forgetful: object) -> None:
        self.blobs = Watched(blobs)
        self.artifacts = Artifacts(self.blobs, notes)  # type: ignore[arg-type]  # watched
        self.others = Artifacts(self.blobs, forgetful)  # type: ignore[arg-type]  # without any notes yet
        self.fingerprint = uuid.uuid4().hex[:16]

    def slot(self, name: str) -> Slot:
        digest = hashlib.sha256(name.encode()).hexdigest()
        source = BlobRef(f"media/{digest}", digest, 3)
        return Slot(0, "image", "vision", "m/vision", source, artifact_key(self.fingerprint, digest), "p")

    def text(self, slot: Slot, text: str = "a cat") -> Artifact:
        return Artifact("text", self.fingerprint, slot.source.digest, text=text)


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.services)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    empty = MemoryArtifactNotes(SystemClock())
    if request.param == "memory":
        yield World(MemoryBlobs(), MemoryArtifactNotes(SystemClock()), empty)
        return
    s3, redis = request.getfixturevalue("s3"), connect(request.getfixturevalue("redis_url"))
    settings = Settings(
        s3_endpoint=s3.endpoint, s3_access_key=Secret(s3.access_key), s3_secret_key=Secret(s3.secret_key)
    )
    blobs = S3Blobs(settings)
    await blobs.start()
    yield World(blobs, RedisArtifactNotes(redis), empty)
    await blobs.close()
    await redis.aclose()


async def test_what_was_stored_is_found_beside_what_was_not(world: World) -> None:
    here, missing = world.slot("here"), world.slot("missing")
    await world.artifacts.store(here.artifact, world.text(here))
    assert await world.artifacts.lookup([missing, here, here]) == [None, world.text(here), world.text(here)]


async def test_notes_save_asking_the_store(world: World) -> None:
    slot = world.slot("noted")
    await world.artifacts.store(slot.artifact, world.text(slot))
    await world.artifacts.lookup([slot])
    assert world.blobs.streams == 0


async def test_without_notes_the_store_knows_and_is_asked_once(world: World) -> None:
    slot = world.slot("unnoted")
    await world.artifacts.store(slot.artifact, world.text(slot))
    for _ in range(2):
        assert await world.others.lookup([slot]) == [world.text(slot)]
    assert world.blobs.streams == 1


async def test_a_long_text_is_read_from_the_store(world: World) -> None:
    slot = world.slot("long")
    artifact = world.text(slot, "word " * NOTE_BYTES)
    await world.artifacts.store(slot.artifact, artifact)
    assert await world.artifacts.lookup([slot]) == [artifact]
    assert world.blobs.streams == 1


async def test_the_header_tells_of_embeddings_without_their_rows(world: World) -> None:
    slot = world.slot("rows")
    artifact = Artifact("embeddings", world.fingerprint, slot.source.digest, rows=600, width=576, dtype="float32")
    await world.artifacts.store(slot.artifact, artifact, bytes(600 * 576 * 4))
    assert await world.others.lookup([slot]) == [artifact]


async def test_an_object_that_is_no_artifact_counts_as_missing(world: World) -> None:
    broken, foreign = world.slot("broken"), world.slot("foreign")
    data = b"\x10\0\0\0\0\0\0\0 no json"
    await world.blobs.put(BlobRef(broken.artifact, hashlib.sha256(data).hexdigest(), len(data)), data)
    await world.artifacts.store(foreign.artifact, world.text(broken))
    assert await world.others.lookup([broken, foreign]) == [None, None]
