"""Decoder processes killed, stopped and asked to cancel, on a real broker, Redis and object store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.events import Cancelled, Event, Finished, Made
from tests.chaos.decoders import Decoders, decoders
from tests.services import S3

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]


@pytest.fixture
async def world(kafka_alone: str, redis_url: str, s3: S3, tmp_path: Path) -> AsyncIterator[Decoders]:
    async with decoders(kafka_alone, redis_url, s3, tmp_path) as one:
        yield one


def check_whole(events: list[Event], end: type[Event] = Finished) -> None:
    """Seqs without gaps, one end, of that kind."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [type(event) for event in events if type(event).__name__ in ("Finished", "Failed", "Cancelled")] == [end]
    assert isinstance(events[-1], end)


async def test_a_picture_of_a_killed_decoder_is_made_once_by_another_one(world: Decoders) -> None:
    for name in ("d1", "d2"):
        await world.start_kind("image", name, step_ms=100)
    pictures = [await world.draw(steps=40) for _ in range(4)]
    victim = await world.began(pictures[0])
    world.children[victim].kill()
    for head in pictures:
        events = await world.ended(head)
        check_whole(events)
        (made,) = [event for event in events if isinstance(event, Made)]
        assert (await world.blobs.get(made.ref))[:4] == b"\x89PNG"
    assert {event.attempt for event in await world.events(pictures[0])} == {1, 2}


async def test_a_decoder_told_to_stop_finishes_what_it_draws_and_leaves_the_rest(world: Decoders) -> None:
    for name in ("d1", "d2"):
        await world.start_kind("image", name, step_ms=100)
    drawn = await world.draw(steps=40)
    leaver = world.children[await world.began(drawn)]
    others = [await world.draw(steps=1 + number) for number in range(6)]  # unlike: one at a time
    leaver.terminate()
    for head in (drawn, *others):
        events = await world.ended(head)
        check_whole(events)
        assert sum(isinstance(event, Made) for event in events) == 1
    assert {event.attempt for event in await world.events(drawn)} == {1}
    leaver.end(20)
    assert leaver.exit_code() == 0


async def test_cancelling_reaches_a_picture_in_mid_diffusion_within_a_second(world: Decoders) -> None:
    await world.start_kind("image", "d1", step_ms=100)
    drawn = await world.draw(steps=200)
    await world.began(drawn)  # partitions are read in any order: only now are the others behind it
    waiting = [await world.draw(steps=steps, parent="p") for steps in (199, 198)]
    for head in waiting:
        await world.taken(head)
    await world.results.cancel(world.model, "p", "the client went away")
    await world.results.cancel(world.model, drawn.request_id, "the client went away")
    for head in (drawn, *waiting):
        check_whole(await world.ended(head, within_s=1.0), Cancelled)
    # The engine itself has stopped: 200 steps would take 20 s.
    check_whole(await asyncio.wait_for(world.ended(await world.draw(steps=1)), 5))


async def test_sentences_come_in_order_once_each_though_their_speaker_is_killed(world: Decoders) -> None:
    await world.start_kind("audio", "s1", step_ms=400)
    text = " ".join(f"Sentence number {number}." for number in range(8))
    speech = await world.say(text)
    await world.began(speech, Made, count=2)
    world.children["s1"].kill()
    await world.start_kind("audio", "s2", step_ms=20)
    events = await world.ended(speech)
    check_whole(events)
    made = [event for event in events if isinstance(event, Made)]
    assert [event.number for event in made] == list(range(8))
    assert " ".join(event.text for event in made) == text
    assert {event.attempt for event in made} == {1, 2}
    assert all(event.ref.media_type == "audio/pcm" for event in made)
