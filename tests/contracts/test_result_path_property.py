"""Any interleaving of workers, deaths, retries and cut connections makes one stream without gaps and with one end."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.ports import AppendState, Incarnation, Outgoing
from schemas.events import Cancelled, Event, Failed, Finished
from tests.contracts.result_worlds import World, finished, memory_world, redis_world, tokens

TERMINAL = (Finished, Failed, Cancelled)
MAX_ATTEMPTS = 50

workers = st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("claim"), workers),
    st.tuples(st.just("append"), workers, st.integers(1, 3)),
    st.tuples(st.just("repeat"), workers),
    st.tuples(st.just("finish"), workers),
    st.tuples(st.just("die"), workers),
    st.tuples(st.just("requeue"), workers),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("end")),
    st.tuples(st.just("hang_up")),
    st.tuples(st.just("reconnect")),
)


class Worker:
    """Does what a real one does: counts on from its claim, and never sends again what was answered, unless it repeats.

    A death is only suspected: the process goes on, as a zombie, until it claims again.
    """

    def __init__(self, name: str) -> None:
        self.me = Incarnation(name, 1)
        self.attempt = 0
        self.next_seq = 1
        self.last: list[Event] = []
        self.last_state: AppendState | None = None


class Story:
    """Plays the steps against one request, and knows what must be in its stream."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.head = world.head()
        self.workers = [Worker(name) for name in ("a", "b", "c")]
        self.current = 0
        self.expected: list[Event] = []
        self.connected = True

    async def play(self, step: tuple[object, ...]) -> None:
        verb, *args = step
        await getattr(self, f"_{verb}")(*args)

    async def _claim(self, index: int) -> None:
        worker = self.workers[index]
        await self.world.revive(worker.me)
        claim = await self.world.results.claim(self.head, worker.me, MAX_ATTEMPTS)
        if claim.state in ("mine", "cancelled"):
            assert claim.attempt > self.current
            assert claim.last_seq == len(self.expected)
            self.current = worker.attempt = claim.attempt
            worker.next_seq = claim.last_seq + 1

    async def _append(self, index: int, count: int) -> None:
        worker = self.workers[index]
        await self._send(worker, tokens(worker.next_seq, worker.next_seq + count - 1, worker.attempt))

    async def _finish(self, index: int) -> None:
        worker = self.workers[index]
        await self._send(worker, [finished(worker.next_seq, worker.attempt)])

    async def _send(self, worker: Worker, events: list[Event]) -> None:
        if worker.attempt == 0:
            return
        (state,) = await self.world.results.append([Outgoing(self.head, events)])
        worker.last, worker.last_state = events, state
        if state in ("stored", "cancelled"):
            assert worker.attempt == self.current, "a zombie was believed"
            self.expected += events
            worker.next_seq += len(events)

    async def _repeat(self, index: int) -> None:
        """The reply was lost, says the worker, and sends the same again."""
        worker = self.workers[index]
        if worker.last:
            (state,) = await self.world.results.append([Outgoing(self.head, worker.last)])
            was_stored = worker.last_state in ("stored", "cancelled")
            assert (state in ("stored", "cancelled")) == (was_stored and worker.attempt == self.current)

    async def _die(self, index: int) -> None:
        worker = self.workers[index]
        await self.world.revive(worker.me)
        await self.world.kill(worker.me)

    async def _requeue(self, index: int) -> None:
        worker = self.workers[index]
        await self.world.results.requeue(self.head, worker.attempt, worker.me)

    async def _cancel(self) -> None:
        await self.world.results.cancel(self.world.model, self.head.request_id, "")

    async def _end(self) -> None:
        ended = any(isinstance(event, TERMINAL) for event in self.expected)
        word = Failed(0, 0, "deadline_exceeded", f"said after {len(self.expected)}")
        if await self.world.results.end(self.head, word) and not ended:
            self.expected.append(Failed(self.current, len(self.expected) + 1, word.code, word.message))

    async def _hang_up(self) -> None:
        if self.connected:
            await self.world.hang_up()
        self.connected = False

    async def _reconnect(self) -> None:
        if not self.connected:
            await self.world.reconnect()
        self.connected = True


async def tell(world: World, plot: list[tuple[object, ...]]) -> None:
    story = Story(world)
    reader = world.follower.follow(world.model, story.head.request_id)
    for step in plot:
        await story.play(step)
    await story.play(("end",))
    await story.play(("reconnect",))
    async with asyncio.timeout(10):
        got = [event async for event in reader]
    assert got == story.expected
    assert [event.seq for event in got] == list(range(1, len(got) + 1))
    assert [isinstance(event, TERMINAL) for event in got] == [False] * (len(got) - 1) + [True]


def told_in(open_world: Callable[[], AbstractAsyncContextManager[World]], plot: list[tuple[object, ...]]) -> None:
    async def body() -> None:
        async with open_world() as world:
            await tell(world, plot)

    asyncio.run(body())


@given(st.lists(steps, max_size=40))
@settings(max_examples=200, deadline=None)
def test_every_story_in_memory_has_one_end(plot: list[tuple[object, ...]]) -> None:
    told_in(memory_world, plot)


@pytest.mark.services
@given(plot=st.lists(steps, max_size=30))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_story_on_redis_has_one_end(redis_url: str, plot: list[tuple[object, ...]]) -> None:
    told_in(lambda: redis_world(redis_url), plot)
