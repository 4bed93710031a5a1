"""What encoders tell each other, on every store of notes."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from infra.artifact_notes import RedisArtifactNotes
from infra.artifact_ports import ArtifactNotes
from infra.clock import SystemClock
from infra.memory_notes import MemoryArtifactNotes
from infra.redis_client import connect
from tests.waiting import until

TTL_MS = 200


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def notes(request: pytest.FixtureRequest) -> AsyncIterator[ArtifactNotes]:
    if request.param == "memory":
        yield MemoryArtifactNotes(SystemClock(), flight_ttl_ms=TTL_MS)
        return
    redis = connect(request.getfixturevalue("redis_url"))
    yield RedisArtifactNotes(redis, flight_ttl_ms=TTL_MS)
    await redis.aclose()


@pytest.fixture
def key() -> str:
    return f"artifacts/{uuid.uuid4().hex}"


async def test_notes_are_found_in_the_order_asked_for(notes: ArtifactNotes, key: str) -> None:
    await notes.put(f"{key}/a", b"A")
    await notes.put(f"{key}/b", b"B")
    assert await notes.get([f"{key}/b", f"{key}/none", f"{key}/a"]) == [b"B", None, b"A"]
    assert await notes.get([]) == []


async def test_a_note_of_what_is_gone_is_dropped(notes: ArtifactNotes, key: str) -> None:
    await notes.put(f"{key}/a", b"A")
    await notes.put(f"{key}/b", b"B")
    await notes.drop(f"{key}/a")
    await notes.drop(f"{key}/a")
    assert await notes.get([f"{key}/a", f"{key}/b"]) == [None, b"B"]


async def test_one_maker_at_a_time(notes: ArtifactNotes, key: str) -> None:
    assert await notes.take_off(key, "alice") == 1
    assert await notes.take_off(key, "bob") == 0
    assert await notes.take_off(key, "alice") == 1
    await notes.land(key, "alice")
    assert await notes.take_off(key, "bob") == 1


async def test_a_maker_that_died_is_replaced_and_the_tries_are_counted(notes: ArtifactNotes, key: str) -> None:
    assert await notes.take_off(key, "alice") == 1

    async def taken_over_by(maker: str) -> bool:
        return await notes.take_off(key, maker) > 0

    await until(lambda: taken_over_by("bob"), 5.0)
    assert await notes.take_off(key, "bob") == 2
    await notes.land(key, "alice")  # late, and not its own any more
    assert await notes.take_off(key, "carol") == 0
    await notes.land(key, "bob")
    assert await notes.take_off(key, "carol") == 1


async def test_a_maker_that_renews_keeps_it(notes: ArtifactNotes, key: str) -> None:
    await notes.take_off(key, "alice")
    for _ in range(4):
        await asyncio.sleep(TTL_MS / 2_000)
        await notes.fly_on([key], "alice")
        assert await notes.take_off(key, "bob") == 0


async def test_renewing_what_another_has_taken_changes_nothing(notes: ArtifactNotes, key: str) -> None:
    await notes.take_off(key, "alice")
    await notes.fly_on([key], "bob")
    assert await notes.take_off(key, "bob") == 0
    await notes.fly_on([], "bob")


async def test_joined_requests_are_remembered(notes: ArtifactNotes, key: str) -> None:
    assert not await notes.joined(key)
    await notes.mark_joined(key)
    assert await notes.joined(key)
