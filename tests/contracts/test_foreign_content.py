"""What nobody of ours could have written, in Redis, where ports look: it costs itself, and nothing comes out of a port
but what ports may raise."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from infra import keys
from infra.artifact_notes import RedisArtifactNotes
from infra.clock import SystemClock
from infra.faults import Corrupt
from infra.file_records import RedisFileRecords
from infra.leases import RedisLeases
from infra.memory_blobs import MemoryBlobs
from infra.pool_members import RedisPoolMembers
from infra.redis_client import connect
from schemas.files import FileRecord
from schemas.media import Artifact, Slot
from schemas.refs import BlobRef
from schemas.signals import Beat
from tests.contracts.result_worlds import new_model
from topics.artifacts import Artifacts

pytestmark = pytest.mark.services

GARBAGE = [b"\xc1\xff", b"\x93\x01\x02", b'{"json": 1}', b""]
PARTITIONS = 3


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with connect(redis_url) as client:
        yield client


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_beat_that_is_none_hides_its_own_worker_only_and_is_told_of_once(
    redis: Redis, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    model = new_model()
    leases = RedisLeases(redis, model)
    for name in ("good", "bad"):
        await leases.tick(await leases.join(name), PARTITIONS, Beat(name, 1, at=0.0))
    await redis.hset(keys.beats(model), "bad", garbage)
    for _ in range(3):
        assert set((await leases.view(PARTITIONS)).beats) == {"good"}
    assert caplog.text.count("nobody understands") == 1


@pytest.mark.parametrize("owner", [b"nobody", b"worker:epoch", b"\xff:1", b":"])
async def test_a_lease_of_nobody_we_know_is_no_owner(redis: Redis, owner: bytes) -> None:
    model = new_model()
    leases = RedisLeases(redis, model)
    await leases.tick(await leases.join("w"), PARTITIONS, Beat("w", 1, at=0.0))
    await redis.set(keys.lease(model, 1), owner)
    assert set((await leases.view(PARTITIONS)).owners) == {0, 2}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_file_record_that_is_none_counts_as_absent(redis: Redis, garbage: bytes) -> None:
    records, owner, now = RedisFileRecords(redis, SystemClock()), uuid4().hex, SystemClock().now()
    good, bad = (FileRecord(uuid4().hex, owner, "a.png", "vision", 1, now, now + 60) for _ in range(2))
    for one in (good, bad):
        await records.add(one)
    await redis.set(keys.file(bad.id), garbage)
    await redis.zadd(keys.files_of(owner), {b"\xff": now + 1})
    assert await records.get(bad.id) is None
    assert await records.listing(owner, "", 10) == [good]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_note_that_is_none_is_written_anew_from_the_store(redis: Redis, garbage: bytes) -> None:
    notes, key, digest = RedisArtifactNotes(redis), f"artifacts/{uuid4().hex}", "0" * 64
    artifacts = Artifacts(MemoryBlobs(), notes)
    slot = Slot(0, "image", "vision", "m/vision", BlobRef("media/x", digest, 3), key, "p")
    made = Artifact("text", "fingerprint", digest, text="a cat")
    await artifacts.store(key, made)
    await notes.put(key, garbage)
    assert await artifacts.lookup([slot]) == [made]
    assert (await notes.get([key]))[0] not in (None, garbage)


async def test_a_worker_whose_name_is_no_text_is_still_counted(redis: Redis) -> None:
    pool, members = uuid4().hex, RedisPoolMembers(redis)
    await members.stay(pool, "w")
    await redis.zadd(keys.pool_members(pool), {b"\xff\xfe": 9e15})
    assert len((await members.look([pool]))[0]) == 2


async def test_a_key_of_another_kind_is_corrupt(redis: Redis) -> None:
    records, file_id = RedisFileRecords(redis, SystemClock()), uuid4().hex
    await redis.lpush(keys.file(file_id), "x")
    with pytest.raises(Corrupt):
        await records.get(file_id)
