"""Encoder processes killed and stopped, on real services; what they encode with only takes time (sim)."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra import keys
from schemas.events import Cancelled
from tests.chaos.encoders import EncoderProcesses, encoders
from tests.services import S3
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]


@pytest.fixture
async def world(kafka_alone: str, redis_url: str, s3: S3, tmp_path: Path) -> AsyncIterator[EncoderProcesses]:
    async with encoders(kafka_alone, redis_url, s3, tmp_path) as one:
        yield one


async def test_a_picture_is_encoded_once_over_users_replicas_turns_and_restarts(world: EncoderProcesses) -> None:
    first = await world.start("e1", sim_ms=100)
    await world.start("e2", sim_ms=100)
    pictures = await world.pictures(2)
    heads = [await world.ask([*pictures, pictures[0]]) for _ in range(4)]
    for head in heads:
        await world.joined(head)
        assert len(set(map(str, await world.sent(head)))) == 1
    assert sum(world.counted("made").values()) == len(pictures)

    first.terminate()
    await asyncio.to_thread(first.end, 20)
    assert first.exit_code() == 0
    await world.start("e3", sim_ms=100)
    async for key in world.redis.scan_iter("tri:{media}:*"):
        await world.redis.delete(key)  # the object store is what remembers
    await world.joined(await world.ask(pictures))
    assert sum(world.counted("made").values()) <= len(pictures)
    assert world.counted("made")["e3"] == 0


async def test_an_encoder_killed_at_work_is_taken_over_and_no_request_is_lost(world: EncoderProcesses) -> None:
    await world.start("e1", sim_ms=1_500)
    await world.start("e2", sim_ms=50)
    pictures = await world.pictures(6)
    heads = [await world.ask(pictures), await world.ask(pictures[:3])]

    async def both_are_at_work() -> bool:
        flights = [key async for key in world.redis.scan_iter(keys.flight("*"))]
        return bool(flights) and world.counted("made")["e2"] > 0

    await until(both_are_at_work, 30)
    world.children["e1"].kill()
    for head in heads:
        await world.joined(head)
        assert len(set(map(str, await world.sent(head)))) == 1
    # What the dead one was at was not stored; nothing else was made twice.
    assert world.counted("made")["e2"] <= len(pictures)


async def test_eight_pictures_of_one_request_are_encoded_side_by_side(world: EncoderProcesses) -> None:
    async def seconds() -> float:
        began = time.monotonic()
        await world.joined(await world.ask(await world.pictures(8)))
        return time.monotonic() - began

    await world.start("e1", sim_ms=800)
    await world.joined(await world.ask(await world.pictures(2)))  # decoders have started
    alone = await seconds()
    await world.start("e2", sim_ms=800)
    await world.joined(await world.ask(await world.pictures(4)))
    together = await seconds()
    print(f"sim, 800 ms a picture: one encoder {alone:.2f} s, two {together:.2f} s, ratio {together / alone:.2f}")
    assert together < 0.6 * alone


async def test_cancelling_reaches_a_picture_that_waits_within_a_second(world: EncoderProcesses) -> None:
    await world.start("e1", sim_ms=1_500)
    head = await world.ask(await world.pictures(8))

    async def at_work() -> bool:
        return bool([key async for key in world.redis.scan_iter(keys.flight("*"))])

    await until(at_work, 20)
    await world.results.cancel(world.model, head.request_id, "the client went away")

    async def has_ended() -> bool:
        return bool(await world.events(head))

    await until(has_ended, 1.0)
    assert [type(one) for one in await world.events(head)] == [Cancelled]
    assert await world.sent(head) == []
