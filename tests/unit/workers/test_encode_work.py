import asyncio
import itertools
from collections import Counter

import msgspec
import pytest

from infra.faults import Unavailable
from schemas.events import Cancelled, Failed, Finished, Transcript
from schemas.jobs import EncodeJob
from schemas.steering import Decision
from tests.unit.workers.encode_world import FLIGHT_TTL_MS, Fuse, Killed, World
from tests.waiting import until
from workers.encode_work import EncodeWork
from workers.encoder import MediaFault

IMAGES = ("cat", "dog", "fox")


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_whoever_is_last_sends_the_request_on(world: World, order: tuple[int, ...]) -> None:
    jobs = world.jobs(await world.slots(*IMAGES))
    for turn, number in enumerate(order):
        assert world.sent() == []
        async with world.worker(f"encoder {turn}") as work:
            await work.handle(jobs[number])
    (sent,) = world.sent()
    assert sent.prompt_ids == [3, 3, 0, 3, 3, 1, 3, 3, *range(2, 10)]
    assert sent.sampling.max_tokens == 400 - 16


async def test_what_is_sent_on_tells_why_and_bears_the_headers_that_join_logs(world: World) -> None:
    (job,) = world.jobs(await world.slots("cat"))
    async with world.worker() as work:
        await work.handle(job, [("x-request-id", b"theirs")])
    ((record, sent),) = world.sent_on()
    assert record.headers == (("x-request-id", b"theirs"),)
    assert sent.decision == Decision("", record.at.partition, "no_live_worker")


async def test_items_that_come_together_are_sent_on_once(world: World) -> None:
    jobs = world.jobs(await world.slots(*IMAGES))
    async with world.worker() as work:
        await asyncio.gather(*map(work.handle, jobs))
    assert len(world.sent()) == 1


async def test_a_job_that_comes_again_changes_nothing(world: World) -> None:
    jobs = world.jobs(await world.slots(*IMAGES))
    async with world.worker() as work:
        for job in jobs + jobs:
            await work.handle(job)
    assert len(world.sent()) == 1
    assert len(world.eye.seen) == 3


async def test_what_comes_again_after_redis_forgot_all_is_sent_again_and_equal(world: World) -> None:
    jobs = world.jobs(await world.slots(*IMAGES))
    async with world.worker() as work:
        for job in jobs:
            await work.handle(job)
        world.notes.forget()
        await work.handle(jobs[1])
    first, second = world.sent()
    assert first == second
    assert len(world.eye.seen) == 3


async def killed_at(world: World, step: int, jobs: list[EncodeJob]) -> Fuse:
    """A worker that handles these and dies before that step; then the broker gives all of them to another one."""
    fuse = Fuse(step)
    async with world.worker("first", fuse) as work:
        await asyncio.gather(*map(work.handle, jobs), return_exceptions=True)
    async with world.worker("second") as work:
        async with asyncio.timeout(10):
            await asyncio.gather(*map(work.handle, jobs))
    return fuse


async def test_a_crash_at_any_step_loses_no_request_and_makes_no_second_kind_of_it() -> None:
    for step in itertools.count():
        world = World()
        world.notes._ttl_s = 0.05  # a dead one is replaced at once
        jobs = world.jobs(await world.slots("cat", "dog"))
        fuse = await killed_at(world, step, jobs)
        sent = world.sent()
        assert sent, f"lost at step {step}"
        assert len({msgspec.msgpack.encode(one) for one in sent}) == 1
        assert max(Counter(world.eye.seen).values()) <= 2
        if not fuse.blown:
            break
    assert step > 10


async def test_equal_items_of_any_requests_are_encoded_once(world: World) -> None:
    first = world.jobs(await world.slots("cat", "cat"), world.head("r1"))
    second = world.jobs(await world.slots("cat"), world.head("r2"))
    async with world.worker("a") as one, world.worker("b") as other:
        await asyncio.gather(*map(one.handle, first), *map(other.handle, second))
        await other.handle(world.jobs(await world.slots("cat"), world.head("r3"))[0])
    assert world.eye.seen == [b"cat"]
    assert {one.head.request_id for one in world.sent()} == {"r1", "r2", "r3"}


async def test_a_dead_encoder_is_replaced_within_seconds(world: World) -> None:
    (slot,) = await world.slots("cat")
    (job,) = world.jobs([slot])
    assert await world.notes.take_off(slot.artifact, "a dead one") == 1
    async with world.worker() as work:
        async with asyncio.timeout(3 * FLIGHT_TTL_MS / 1000 + 1):
            await work.handle(job)
    assert len(world.sent()) == 1


async def test_waiting_for_another_encoder_holds_up_nothing_else(world: World) -> None:
    slots = await world.slots("cat", "dog")
    assert await world.notes.take_off(slots[0].artifact, "busy") == 1
    async with world.worker() as work:
        waiting = asyncio.create_task(work.handle(world.jobs(slots[:1], world.head("r1"))[0]))
        await work.handle(world.jobs(slots[1:], world.head("r2"))[0])
        assert [one.head.request_id for one in world.sent()] == ["r2"]
        await world.notes.land(slots[0].artifact, "busy")
        await waiting
    assert len(world.sent()) == 2


async def test_an_item_at_which_encoders_die_is_given_up(world: World) -> None:
    (slot,) = await world.slots("cat")
    world.notes._ttl_s = 0.02
    for maker in ("x", "y", "z"):
        await until(lambda maker=maker: world.notes.take_off(slot.artifact, maker), 2.0)  # type: ignore[arg-type]  # a number
    async with world.worker() as work:
        await work.handle(world.jobs([slot])[0])
    (event,) = world.events()
    assert isinstance(event, Failed)
    assert (event.code, event.param) == ("too_many_attempts", slot.param)
    assert world.eye.seen == []


@pytest.mark.parametrize("content", ["broken", "blank"])
async def test_a_faulty_item_fails_its_request_by_name(world: World, content: str) -> None:
    world.eye.faults[b"blank"] = MediaFault("media_unreadable", "the picture is cut off")
    jobs = world.jobs(await world.slots("cat", content))
    async with world.worker() as work:
        await asyncio.gather(*map(work.handle, jobs))
    failed = Failed(0, 1, "media_unreadable", "the picture is cut off", "messages[0].content[1]")
    assert (world.events(), world.sent()) == ([failed], [])


async def test_a_lost_item_is_named(world: World) -> None:
    slots = await world.slots("cat")
    await world.blobs.delete(slots[0].source.key)
    async with world.worker() as work:
        await work.handle(world.jobs(slots)[0])
    (event,) = world.events()
    assert isinstance(event, Failed)
    assert (event.code, event.param) == ("file_not_found", slots[0].param)


async def test_a_prompt_that_grew_too_long_fails_the_request(world: World) -> None:
    (job,) = world.jobs(await world.slots("cat"), context_tokens=12)
    async with world.worker() as work:
        await work.handle(job)
    (event,) = world.events()
    assert isinstance(event, Failed)
    assert event.code == "context_length_exceeded"


async def test_a_bug_in_an_engine_is_raised_for_that_item_only_and_given_up(world: World) -> None:
    world.eye.faults[b"fox"] = ZeroDivisionError("a bug")
    jobs = [world.jobs(await world.slots(one), world.head(one))[0] for one in IMAGES]
    async with world.worker() as work:
        found = await asyncio.gather(*map(work.handle, jobs), return_exceptions=True)
        assert [type(one) for one in found] == [type(None), type(None), ZeroDivisionError]
        await work.give_up(jobs[2], found[2])  # type: ignore[arg-type]  # an exception
    (event,) = world.events("fox")
    assert isinstance(event, Failed)
    assert event.code == "internal"
    assert "bug" not in event.message
    assert len(world.sent()) == 2


async def test_another_version_of_the_encoder_is_not_passed_off(world: World) -> None:
    (slot,) = await world.slots("cat")
    (job,) = world.jobs([msgspec.structs.replace(slot, artifact="artifacts/0000/x.safetensors")])
    async with world.worker() as work:
        await work.handle(job)
    (event,) = world.events()
    assert isinstance(event, Failed)
    assert "version" in event.message
    assert world.eye.seen == []


async def test_a_passed_deadline_ends_the_request(world: World) -> None:
    (slot,) = await world.slots("cat")
    await world.notes.take_off(slot.artifact, "somebody slow")
    world.notes._ttl_s = 60
    await world.notes.fly_on([slot.artifact], "somebody slow")
    async with world.worker() as work:
        await work.handle(world.jobs([slot], world.head(seconds=0.2))[0])
        await work.handle(world.jobs([slot], world.head("late", seconds=-1))[0])
    assert [one.code for one in world.events() + world.events("late")] == ["deadline_exceeded"] * 2  # type: ignore[union-attr]  # Failed


async def test_a_request_that_has_ended_is_not_encoded(world: World) -> None:
    (job,) = world.jobs(await world.slots("cat"))
    await world.results.end(job.head, Failed(0, 0, "internal", "x"))
    async with world.worker() as work:
        await work.handle(job)
    assert (world.eye.seen, world.sent()) == ([], [])


async def test_a_cancelled_request_ends_without_being_encoded(world: World) -> None:
    (job,) = world.jobs(await world.slots("cat"))
    await world.results.cancel("m", "r", "gone")
    async with world.worker() as work:
        await work.handle(job)
    (event,) = world.events()
    assert isinstance(event, Cancelled)
    assert (world.eye.seen, world.sent()) == ([], [])


async def test_a_signal_cancels_what_waits(world: World) -> None:
    (slot,) = await world.slots("cat")
    await world.notes.take_off(slot.artifact, "busy")
    async with world.worker() as work:
        waiting = asyncio.create_task(work.handle(world.jobs([slot])[0]))
        await until(lambda: bool(work._open))
        work.cancel("r", "gone")
        await waiting
    assert world.events() == [Cancelled(0, 1, "gone")]


async def test_nobody_is_failed_by_the_cancellation_of_another_who_waits_for_the_same(world: World) -> None:
    slots = await world.slots("cat")
    jobs = [world.jobs(slots, world.head(one))[0] for one in ("r1", "r2")]
    await world.notes.take_off(slots[0].artifact, "busy")
    async with world.worker() as work:
        tasks = [asyncio.create_task(work.handle(job)) for job in jobs]
        await until(lambda: len(work._open) == 2)
        work.cancel("r1", "gone")
        await world.notes.land(slots[0].artifact, "busy")
        await asyncio.gather(*tasks)
    assert [one.head.request_id for one in world.sent()] == ["r2"]


def transcription(world: World, slots: list, request_id: str = "r") -> EncodeJob:  # type: ignore[type-arg]  # slots
    return EncodeJob(world.head(request_id), slots, 0)


async def test_a_request_for_a_transcript_is_answered_and_ended(world: World) -> None:
    async with world.worker() as work:
        await work.handle(transcription(world, await world.slots("hello")))
    transcript, finished = world.events()
    assert transcript == Transcript(1, 1, "saw hello", [], "en", 1.5)
    assert isinstance(finished, Finished)
    assert (finished.seq, finished.worker) == (2, "a")


async def test_a_transcript_that_comes_again_is_told_once(world: World) -> None:
    job = transcription(world, await world.slots("hello"))
    async with world.worker("a") as one, world.worker("b") as other:
        await asyncio.gather(one.handle(job), other.handle(job))
    assert len(world.events()) == 2


async def test_a_broken_sound_fails_its_request(world: World) -> None:
    async with world.worker() as work:
        await work.handle(transcription(world, await world.slots("broken")))
    (event,) = world.events()
    assert isinstance(event, Failed)
    assert event.code == "media_unreadable"


async def test_a_transcript_can_be_tried_again_after_trouble(world: World) -> None:
    job = transcription(world, await world.slots("hello"))
    world.eye.faults[b"hello"] = Unavailable("the store is away")
    async with world.worker() as work:
        with pytest.raises(Unavailable):
            await work.handle(job)
        world.eye.faults.clear()
        await work.handle(job)
    assert [type(one) for one in world.events()] == [Transcript, Finished]


async def test_retriable_trouble_is_left_to_the_pool(world: World) -> None:
    world.eye.faults[b"cat"] = Unavailable("later")
    (job,) = world.jobs(await world.slots("cat"))
    async with world.worker() as work:
        with pytest.raises(Unavailable):
            await work.handle(job)
    assert world.events() == []


async def test_figures_tell_what_was_made_reused_and_failed(world: World) -> None:
    async with world.worker() as work:
        for content in ("cat", "cat", "broken"):
            await work.handle(world.jobs(await world.slots(content), world.head(content))[0])
    page = world.metrics.render().decode()
    for how in ("made", "reused", "failed"):
        assert f'triptych_encoded_items_total{{encoder="m/vision",how="{how}",pool="vision"}} 1.0' in page


def test_work_is_what_pools_take() -> None:
    assert callable(EncodeWork.handle)
    assert issubclass(Killed, Exception)
