"""The loop's promise: whatever happens, a request ends in exactly one terminal event or is left for another attempt."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence

import pytest

from infra.memory import MemoryHub, MemoryResults
from infra.ports import AppendState, Claim, Incarnation, Outgoing
from schemas.events import Cancelled, Event, Failed, Finished, Restarted, Terminal, Token
from schemas.jobs import GenerateJob, Head
from tests.unit.workers.pool import MODEL, Worker, job
from tests.waiting import until
from topics.bus import FencedOff
from workers.engine import Rows, Step, Unrunnable
from workers.engines.stub import StubEngine
from workers.loop import READ_AHEAD


def stub(step_s: float = 0.001, **more: object) -> StubEngine:
    return StubEngine(slots=64, step_s=step_s, **more)  # type: ignore[arg-type]


def check_whole(events: list[Event]) -> None:
    """Seqs without gaps, one terminal event, at the end."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    ends = [event for event in events if isinstance(event, (Finished, Failed, Cancelled))]
    assert ends == [events[-1]]


async def test_a_job_becomes_tokens_and_one_end_and_is_acknowledged() -> None:
    async with Worker(MemoryHub(), stub()).running() as worker:
        worker.consumer.put(job("a", tokens=3))
        await until(lambda: worker.ended("a"))
    events = worker.events("a")
    check_whole(events)
    assert [event.text for event in events if isinstance(event, Token)] == [" tok0", " tok1", " tok2"]
    end = events[-1]
    assert isinstance(end, Finished)
    assert (end.usage.prompt, end.usage.completion, end.partition, end.worker) == (3, 3, 0, "w")


async def test_never_more_jobs_run_than_there_are_slots() -> None:
    async with Worker(MemoryHub(), stub(0.005), slots=2).running() as worker:
        for number in range(6):
            worker.consumer.put(job(f"r{number}"))
        highest = 0
        while len(worker.consumer.finished) < 6:
            highest = max(highest, worker.engine.load().running)
            await asyncio.sleep(0.001)
    assert highest == 2
    assert max(worker.consumer.most_at_once) <= 2 + READ_AHEAD


async def test_an_urgent_job_begins_before_others_that_came_first() -> None:
    async with Worker(MemoryHub(), stub(0.01), slots=1).running() as worker:
        worker.consumer.put(job("running", tokens=100))
        await until(lambda: bool(worker.events("running")))
        worker.consumer.put(job("batch", priority=10))
        worker.consumer.put(job("urgent"))
        await until(lambda: len(worker.queue) == 2)
        await until(lambda: worker.ended("batch"))
    assert worker.consumer.finished == ["running", "urgent", "batch"]


async def test_what_has_not_begun_is_left_when_the_worker_drains() -> None:
    async with Worker(MemoryHub(), stub(0.01), slots=1).running() as worker:
        worker.consumer.put(job("running", tokens=100))
        await until(lambda: bool(worker.events("running")))
        worker.consumer.put(job("queued"))
        await until(lambda: len(worker.queue) == 1)
    assert worker.consumer.finished == ["running"]
    assert worker.events("queued") == []


async def test_a_job_read_twice_runs_once() -> None:
    async with Worker(MemoryHub(), stub(0.005)).running() as worker:
        again = job("a")
        worker.consumer.put(again)
        worker.consumer.put(again)
        await until(lambda: worker.ended("a"))
        check_whole(worker.events("a"))
        assert sum(isinstance(event, Token) for event in worker.events("a")) == 3
        worker.consumer.finished.clear()  # the second delivery is acknowledged as well, once it is seen to be done
        await until(lambda: worker.ended("a"))


async def test_a_store_that_forgets_everything_costs_a_running_request_nothing() -> None:
    hub = MemoryHub()
    async with Worker(hub, stub(0.01)).running() as worker:
        one = job("a", tokens=20, streamed=True)
        worker.consumer.put(one)
        await until(lambda: len(worker.events("a")) >= 3)
        before = worker.events("a")
        hub.forget()
        worker.consumer.put(one)  # and its partition is read again
        await until(lambda: worker.ended("a"))
    after = worker.events("a")
    assert [event.seq for event in before + after] == list(range(1, 22))
    assert isinstance(after[-1], Finished)


async def test_a_running_request_is_cancelled_within_a_second_and_leaves_the_engine() -> None:
    async with Worker(MemoryHub(), stub(0.02)).running() as worker:
        worker.consumer.put(job("a", tokens=10_000))
        await until(lambda: bool(worker.events("a")))
        await worker.results.cancel(MODEL, "a", "the client went away")
        await until(lambda: worker.ended("a"), within_s=1.0)
        assert worker.engine.load().running == 0
    end = worker.events("a")[-1]
    assert isinstance(end, Cancelled)
    check_whole(worker.events("a"))


async def test_a_request_cancelled_while_queued_never_reaches_the_engine() -> None:
    async with Worker(MemoryHub(), stub()).running() as worker:
        await worker.results.cancel(MODEL, "a", "the client went away")
        worker.consumer.put(job("a"))
        await until(lambda: worker.ended("a"))
    assert [type(event) for event in worker.events("a")] == [Cancelled]


async def test_a_request_past_its_deadline_is_refused_and_not_run() -> None:
    async with Worker(MemoryHub(), stub()).running() as worker:
        worker.consumer.put(job("a", lives_s=-1.0))
        await until(lambda: worker.ended("a"))
    (end,) = worker.events("a")
    assert isinstance(end, Failed)
    assert end.code == "deadline_exceeded"


async def test_the_deadline_ends_a_running_request() -> None:
    async with Worker(MemoryHub(), stub(0.02)).running() as worker:
        worker.consumer.put(job("a", tokens=10_000, lives_s=0.2))
        await until(lambda: worker.ended("a"), within_s=2.0)
    events = worker.events("a")
    check_whole(events)
    assert isinstance(events[-1], Failed)
    assert events[-1].code == "deadline_exceeded"


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_engine_death_restarts_it_in_place_and_whole_answers_start_over(streamed: bool) -> None:
    engine = stub(0.01)
    async with Worker(MemoryHub(), engine).running() as worker:
        worker.consumer.put(job("a", tokens=8, streamed=streamed))
        await until(lambda: len(worker.events("a")) >= 2)
        engine.die()
        await until(lambda: worker.ended("a"))
        worker.consumer.put(job("b"))
        await until(lambda: worker.ended("b"))
    events = worker.events("a")
    check_whole(events)
    if streamed:
        assert isinstance(events[-1], Failed)
        assert events[-1].code == "engine_died"
    else:
        assert isinstance(events[-1], Finished)
        after = events[[isinstance(event, Restarted) for event in events].index(True) + 1 :]
        assert [event.text for event in after if isinstance(event, Token)] == [f" tok{i}" for i in range(8)]
    assert isinstance(worker.events("b")[-1], Finished)


async def test_a_request_that_kills_its_engine_each_time_is_given_up_as_poison() -> None:
    async with Worker(MemoryHub(), stub(deadly_token_id=2)).running() as worker:
        worker.consumer.put(job("a"))
        await until(lambda: worker.ended("a"))
    end = worker.events("a")[-1]
    assert isinstance(end, Failed)
    assert end.code == "too_many_attempts"


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_job_of_a_killed_worker_is_taken_over(streamed: bool) -> None:
    hub = MemoryHub()
    one = job("a", tokens=20, streamed=streamed)
    async with Worker(hub, stub(0.01), name="w1").killed() as first:
        first.consumer.put(one)
        await until(lambda: len(first.events("a")) >= 3)
    seen = len(first.events("a"))
    async with Worker(hub, stub(), name="w2").running() as second:
        second.consumer.put(one)
        await until(lambda: second.ended("a"))
    events = second.events("a")
    assert len(events) > seen
    check_whole(events)
    expected = Failed if streamed else Finished
    assert isinstance(events[-1], expected)


async def test_a_request_that_a_living_worker_runs_is_left_to_it() -> None:
    hub = MemoryHub()
    one = job("a", tokens=30)
    async with (
        Worker(hub, stub(0.01), name="w1").running() as first,
        Worker(hub, stub(), name="w2").running() as second,
    ):
        first.consumer.put(one)
        await until(lambda: bool(first.events("a")))
        second.consumer.put(one)
        await until(lambda: first.ended("a"))
        await until(lambda: second.ended("a"))
        assert second.engine.load().running == 0
    check_whole(first.events("a"))


class _Faulty(StubEngine):
    def __init__(self, error: Exception) -> None:
        super().__init__(slots=4, step_s=0.001)
        self._error = error

    async def run(self, job: GenerateJob, rows: Sequence[Rows] = ()) -> AsyncGenerator[Step]:
        raise self._error
        yield  # a generator


class _Endless(StubEngine):
    """Stops without saying that it has ended."""

    async def run(self, job: GenerateJob, rows: Sequence[Rows] = ()) -> AsyncGenerator[Step]:
        return
        yield


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        (_Faulty(Unrunnable("token id 9 is not in the vocabulary", "logit_bias")), "invalid_request"),
        (_Faulty(RuntimeError("secret detail")), "internal"),
        (_Endless(slots=4, step_s=0.001), "engine_no_end"),
    ],
)
async def test_every_way_an_engine_can_fail_is_one_terminal_event(engine: StubEngine, code: str) -> None:
    async with Worker(MemoryHub(), engine).running() as worker:
        worker.consumer.put(job("a"))
        await until(lambda: worker.ended("a"))
    (end,) = worker.events("a")
    assert isinstance(end, Failed)
    assert end.code == code
    assert "secret" not in end.message


async def test_a_draining_worker_hands_back_first_and_finishes_what_runs() -> None:
    async with Worker(MemoryHub(), stub(0.01)).running() as worker:
        worker.consumer.put(job("a", tokens=30))
        await until(lambda: bool(worker.events("a")))
        worker.life.stop()
        await until(lambda: worker.consumer.retired)
        assert not worker.ended("a")
    assert worker.ended("a")
    assert isinstance(worker.events("a")[-1], Finished)


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_the_drain_cuts_short_goes_again_elsewhere_or_ends(streamed: bool) -> None:
    hub = MemoryHub()
    one = job("a", tokens=10_000, streamed=streamed)
    async with Worker(hub, stub(0.01), drain_s=0.1).running() as worker:
        worker.consumer.put(one)
        await until(lambda: bool(worker.events("a")))
    if streamed:
        assert isinstance(worker.events("a")[-1], Failed)
        assert worker.ended("a")
        return
    assert not worker.ended("a")
    claim = await worker.results.claim(one.head, Incarnation("w2", 1), 3)
    assert (claim.state, claim.attempt) == ("mine", 2)


async def test_a_fenced_worker_stops_without_a_last_word() -> None:
    hub = MemoryHub()
    worker = Worker(hub, stub(0.01))
    hub.alive[(MODEL, "w")] = 1
    await worker.engine.start(lambda _: None)
    task = asyncio.create_task(worker.loop.run(worker.life))
    worker.consumer.put(job("a", tokens=10_000))
    await until(lambda: bool(worker.events("a")))
    worker.consumer.fenced = True
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(task, 5)
    assert caught.group_contains(FencedOff)
    await worker.engine.close()
    assert not any(isinstance(event, (Finished, Failed, Cancelled)) for event in worker.events("a"))
    assert not worker.ended("a")


class _Broken(MemoryResults):
    """Raises what nobody foresaw: at the claims of some requests, at the end of others."""

    def __init__(
        self, hub: MemoryHub, claims: Collection[str], ends: Collection[str] = (), error: type = ValueError
    ) -> None:
        super().__init__(hub)
        self._claims, self._ends, self._error = claims, ends, error

    async def claim(self, head: Head, by: Incarnation, max_attempts: int) -> Claim:
        if head.request_id in self._claims:
            raise self._error("ERR value is not an integer or out of range")
        return await super().claim(head, by, max_attempts)

    async def end(self, head: Head, event: Terminal) -> bool:
        if head.request_id in self._ends:
            raise ValueError("ERR value is not an integer or out of range")
        return await super().end(head, event)


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_what_one_delivery_raises_ends_its_request_and_stops_no_other(error: type) -> None:
    hub = MemoryHub()
    async with Worker(hub, stub(), results=_Broken(hub, {"bad"}, error=error)).running() as worker:
        worker.consumer.put(job("before"))
        worker.consumer.put(job("bad"))
        worker.consumer.put(job("after"))
        await until(lambda: len(worker.consumer.finished) == 3)
    (end,) = worker.events("bad")
    assert isinstance(end, Failed) and end.code == "internal"
    assert all(isinstance(worker.events(one)[-1], Finished) for one in ("before", "after"))
    assert worker.consumer.set_asides == []


async def test_a_delivery_whose_request_cannot_even_be_ended_is_set_aside() -> None:
    hub = MemoryHub()
    async with Worker(hub, stub(), results=_Broken(hub, {"bad"}, {"bad"})).running() as worker:
        worker.consumer.put(job("bad"))
        worker.consumer.put(job("after"))
        await until(lambda: len(worker.consumer.finished) == 2)
    assert [(one, type(error)) for one, error in worker.consumer.set_asides] == [("bad", ValueError)]
    assert worker.events("bad") == []


class _Unstorable(MemoryResults):
    """Cannot take what these requests emit, as if it could not be encoded."""

    async def append(self, outgoing: Sequence[Outgoing]) -> list[AppendState]:
        if any(one.head.request_id == "bad" for one in outgoing):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return await super().append(outgoing)


async def test_events_that_cannot_be_stored_end_their_request_only() -> None:
    hub = MemoryHub()
    async with Worker(hub, stub(0.002), results=_Unstorable(hub)).running() as worker:
        for one in ("before", "bad", "after"):
            worker.consumer.put(job(one, tokens=20))
        await until(lambda: len(worker.consumer.finished) == 3)
        assert worker.engine.load().running == 0
    (end,) = worker.events("bad")
    assert isinstance(end, Failed) and end.code == "internal"
    for one in ("before", "after"):
        check_whole(worker.events(one))
        assert len(worker.events(one)) == 21
