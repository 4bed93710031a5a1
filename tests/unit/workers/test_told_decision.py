"""Of a job that somebody else has placed than follows the request, the attempt that runs tells why it runs here."""

import msgspec
import pytest

from infra.memory import MemoryHub
from schemas.events import Event, Steered
from schemas.jobs import GenerateJob
from schemas.steering import Decision
from tests.unit.workers.pool import MODEL, Worker, job
from tests.unit.workers.test_loop import check_whole, stub
from tests.waiting import until

HERE = Decision("w1", 0, "home", 48, alternatives={"w2:1": 0.5})
THERE = Decision("w2", 1, "cold")


def placed(decision: Decision | None, **how: object) -> GenerateJob:
    return msgspec.structs.replace(job("a", **how), decision=decision)  # type: ignore[arg-type]  # as job takes them


def told(events: list[Event]) -> list[tuple[int, Decision]]:
    return [(event.attempt, event.decision) for event in events if isinstance(event, Steered)]


async def run(worker: Worker, one: GenerateJob) -> list[Event]:
    worker.consumer.put(one)
    await until(lambda: worker.ended("a"))
    events = worker.events("a")
    check_whole(events)
    return events


async def test_it_is_told_before_anything_else() -> None:
    async with Worker(MemoryHub(), stub()).running() as worker:
        events = await run(worker, placed(HERE))
    assert told(events) == [(1, HERE)]
    assert isinstance(events[0], Steered)


async def test_what_the_gateway_has_placed_costs_no_event() -> None:
    async with Worker(MemoryHub(), stub()).running() as worker:
        assert told(await run(worker, placed(None))) == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_worker_that_takes_over_tells_it_for_its_own_attempt(streamed: bool) -> None:
    hub, one = MemoryHub(), placed(HERE, streamed=streamed)
    async with Worker(hub, stub(60.0), name="w1").killed() as first:
        first.consumer.put(one)
        await until(lambda: bool(first.events("a")))
    async with Worker(hub, stub(), name="w2").running() as second:
        assert told(await run(second, one)) == [(1, HERE), (2, HERE)]


async def test_of_two_copies_the_one_that_is_claimed_tells_and_no_other() -> None:
    hub = MemoryHub()
    async with (
        Worker(hub, stub(0.01), name="w1").running() as first,
        Worker(hub, stub(), name="w2").running() as second,
    ):
        first.consumer.put(placed(HERE))
        await until(lambda: bool(first.events("a")))
        events = await run(second, placed(THERE))
    assert told(events) == [(1, HERE)]


async def test_a_copy_that_runs_after_the_first_one_s_worker_has_died_tells_its_own() -> None:
    hub = MemoryHub()
    async with Worker(hub, stub(60.0), name="w1").killed() as first:
        first.consumer.put(placed(HERE))
        await until(lambda: bool(first.events("a")))
    async with Worker(hub, stub(), name="w2").running() as second:
        assert told(await run(second, placed(THERE)))[-1] == (2, THERE)


async def test_a_request_that_ends_when_it_is_claimed_tells_where_it_waited() -> None:
    async with Worker(MemoryHub(), stub()).running() as worker:
        await worker.results.cancel(MODEL, "a", "the client went away")
        events = await run(worker, placed(HERE))
    assert told(events) == [(1, HERE)]
    assert len(events) == 2
