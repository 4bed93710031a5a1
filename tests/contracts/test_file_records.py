"""Records of uploaded files, in memory and in Redis."""

import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from infra import keys, redis_client
from infra.clock import SystemClock
from infra.file_records import FileRecords, MemoryFileRecords, RedisFileRecords
from schemas.files import FileRecord
from schemas.refs import payload_ref
from tests.waiting import until


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def records(request: pytest.FixtureRequest) -> AsyncIterator[FileRecords]:
    if request.param == "memory":
        yield MemoryFileRecords(SystemClock())
        return
    client = redis_client.connect(request.getfixturevalue("redis_url"))
    yield RedisFileRecords(client, SystemClock())
    await client.aclose()


def record(owner: str, age_s: float = 0, ttl_s: float = 60) -> FileRecord:
    now = SystemClock().now()
    file_id = f"file-{uuid.uuid4().hex}"
    return FileRecord(file_id, owner, "a.png", "vision", 3, created_at=now - age_s, expires_at=now + ttl_s)


def owner() -> str:
    return uuid.uuid4().hex


async def test_what_is_added_is_got_until_it_is_removed(records: FileRecords) -> None:
    one = record(owner())
    assert await records.get(one.id) is None
    await records.add(one)
    assert await records.get(one.id) == one
    for _ in range(2):
        await records.remove(one)
        assert await records.get(one.id) is None
    assert await records.listing(one.owner, "", 10) == []


async def test_an_update_changes_a_record_and_brings_none_back(records: FileRecords) -> None:
    one = record(owner())
    await records.add(one)
    changed = msgspec.structs.replace(one, blob=payload_ref(b"abc"))
    await records.update(changed)
    assert await records.get(one.id) == changed
    await records.remove(one)
    await records.update(changed)
    assert await records.get(one.id) is None


async def test_records_end_by_themselves(records: FileRecords) -> None:
    mine = owner()
    short, long = record(mine, ttl_s=1), record(mine, age_s=5)
    await records.add(long)
    await records.add(short)
    await records.update(msgspec.structs.replace(short, blob=payload_ref(b"abc")))

    async def gone() -> bool:
        return await records.get(short.id) is None

    await until(gone, within_s=5)
    assert await records.listing(mine, "", 10) == [long]


async def test_listing_is_of_one_owner_newest_first_and_in_pages(records: FileRecords) -> None:
    mine = owner()
    all_of_mine = [record(mine, age_s=age_s) for age_s in range(5)]
    for one in reversed(all_of_mine):
        await records.add(one)
    await records.add(record(owner()))
    assert await records.listing(mine, "", 10) == all_of_mine
    assert await records.listing(mine, "", 2) == all_of_mine[:2]
    assert await records.listing(mine, all_of_mine[1].id, 2) == all_of_mine[2:4]
    assert await records.listing(mine, all_of_mine[4].id, 2) == []
    assert await records.listing(owner(), "", 2) == []


@pytest.mark.services
async def test_listing_skips_what_has_ended_and_forgets_it(redis_url: str) -> None:
    client = redis_client.connect(redis_url)
    records = RedisFileRecords(client, SystemClock())
    mine = owner()
    kept = [record(mine, age_s=age_s) for age_s in range(4)]
    for one in kept:
        await records.add(one)
    await client.delete(keys.file(kept[0].id), keys.file(kept[2].id))
    assert await records.listing(mine, "", 2) == [kept[1], kept[3]]
    assert await client.zcard(keys.files_of(mine)) == 2
    assert 0 < await client.ttl(keys.files_of(mine)) <= 60
    await client.aclose()
