"""A real server on its bad days: ports say Unavailable, or wait; tasks outlive it; nothing is lost or doubled."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from infra.channel import Channel
from infra.faults import Unavailable
from infra.redis_client import connect
from schemas.events import Event
from tests.contracts.outage_world import ASK, PARAMS, PROMPT, WORKER, OutageWorld, Tasks, ask
from tests.contracts.own_valkey import (
    Fault,
    OwnValkey,
    became_replica,
    disk_full,
    killed,
    killed_and_emptied,
    loading,
    long_script,
    lost_primary,
    lost_replicas,
    out_of_memory,
    paused,
    too_many_clients,
)
from tests.contracts.result_worlds import finished, tokens
from tests.proxy import proxy_to
from tests.waiting import until
from workers.outbox import Account

pytestmark = pytest.mark.services

READS = {"results.wishes", "leases.view", "members.look", "notes.get", "notes.joined", "files.get"}
WRITES = {"results.claim", "results.append", "results.end", "leases.tick", "index.release", "notes.put", "files.add"}
NO_WRITES: list[Fault] = [disk_full, became_replica, lost_replicas, out_of_memory]
NO_ANSWER: list[Fault] = [long_script, lost_primary, too_many_clients, killed, killed_and_emptied, loading]
ALL: list[Fault] = [*NO_WRITES, *NO_ANSWER, paused]
KEEP_ALL = [fault for fault in ALL if fault is not killed_and_emptied]

faults = pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.__name__)
faults_that_keep_all = pytest.mark.parametrize("fault", KEEP_ALL, ids=lambda fault: fault.__name__)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[OwnValkey]:
    one = OwnValkey(tmp_path)
    one.start()
    yield one
    one.kill()


@pytest.fixture
async def world(server: OwnValkey) -> AsyncIterator[OutageWorld]:
    async with connect(server.url) as redis:
        yield OutageWorld(redis)


@faults
async def test_every_verb_is_unavailable_or_waits_and_works_again_afterwards(
    fault: Fault, server: OwnValkey, world: OutageWorld
) -> None:
    verbs = await world.prepare()
    async with fault(server):
        came = await ask(verbs)
    assert {name: error for name, error in came.items() if not isinstance(error, Unavailable | None)} == {}
    away = {name for name, error in came.items() if error}
    if fault in NO_WRITES:
        assert away >= WRITES
        assert away.isdisjoint(READS)
    elif fault in NO_ANSWER:
        assert away == came.keys()
    await until(lambda: _all_works(world))


async def emit(tasks: Tasks, account: Account, events: list[Event]) -> None:
    for event in events:
        await tasks.outbox.put(account, event)
    account.seq = events[-1].seq


@faults_that_keep_all
async def test_tasks_outlive_it_and_what_they_had_to_say_arrives_once(
    fault: Fault, server: OwnValkey, world: OutageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = Tasks(world)
    async with tasks.running():
        account = await tasks.account()
        answer = world.follower.follow(world.model, account.head.request_id)
        await emit(tasks, account, tokens(1, 3))
        tasks.store_blocks(2)
        seqs = [(await anext(answer)).seq for _ in range(3)]
        await until(lambda: _matches(tasks, 2))
        await world.index.place("ticket", ASK, [], [WORKER], PARAMS, 60.0)
        async with fault(server):
            await emit(tasks, account, tokens(4, 6))
            tasks.store_blocks(3)
            tasks.reservations.ended(tasks.placed("ticket"))
            await until(lambda: _noticed(fault, caplog, "storing results", "index feed"))
            assert tasks.ended() == {}
            await emit(tasks, account, tokens(7, 8))
        await tasks.outbox.last_word(account, finished(9))
        async with asyncio.timeout(10):
            seqs += [event.seq async for event in answer]
        assert seqs == list(range(1, 10))
        assert not account.refused
        await until(lambda: _matches(tasks, 5))
        await until(lambda: tasks.released == ["ticket"])
        view = await tasks.view()
        assert view is not None
        assert (view.inflight, view.uncached_tokens) == (0, 0)
        assert tasks.ended() == {}


@faults
async def test_afterwards_new_requests_are_served_and_cancels_are_heard(
    fault: Fault, server: OwnValkey, world: OutageWorld, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = Tasks(world)
    async with tasks.running():
        tasks.store_blocks(len(PROMPT) // 4)
        await until(lambda: _matches(tasks, 8))
        async with fault(server):
            await until(lambda: _noticed(fault, caplog, "index feed"))
        account = await tasks.account()
        answer = world.follower.follow(world.model, account.head.request_id)
        await emit(tasks, account, tokens(1, 3))
        await tasks.outbox.last_word(account, finished(4))
        async with asyncio.timeout(10):
            assert [event.seq async for event in answer] == [1, 2, 3, 4]
        await until(lambda: _hears_a_cancel(world, tasks))
        await until(lambda: _matches(tasks, 8))
        assert tasks.ended() == {}
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_channel_goes_on_where_a_full_disk_refuses_even_pings(server: OwnValkey, world: OutageWorld) -> None:
    subscribed: list[int] = []
    channel = Channel(world.redis, "channel", idle_s=0.05, on_subscribed=lambda: subscribed.append(1))
    async with aclosing(channel.messages()) as messages, disk_full(server):
        hearing = asyncio.ensure_future(anext(messages))
        await until(lambda: channel.connected)
        await asyncio.sleep(0.3)  # the silence itself is what is tested
        await world.redis.publish("channel", b"still here")
        assert await asyncio.wait_for(hearing, 5) == b"still here"
    assert subscribed == [1]


async def test_after_a_fail_over_the_new_primary_is_found_by_the_old_name(tmp_path: Path) -> None:
    """The name stands for another server now; connections that are open stay with the old one, a replica by then."""
    old, new = OwnValkey(tmp_path / "old"), OwnValkey(tmp_path / "new")
    for server in (old, new):
        server.start()
    try:
        async with proxy_to("127.0.0.1", old.port) as name, connect(f"redis://127.0.0.1:{name.port}") as redis:
            world = OutageWorld(redis)
            await world.claimed()
            async with became_replica(old):
                name.redirect("127.0.0.1", new.port)
                await world.claimed()
    finally:
        old.kill()
        new.kill()


def _noticed(fault: Fault, caplog: pytest.LogCaptureFixture, *tasks: str) -> bool:
    """Each of these tasks has run into it; of a pause they only see that an answer takes long."""
    told = [record.getMessage() for record in caplog.records if "trying again" in record.getMessage()]
    return fault is paused or all(any(line.startswith(task) for line in told) for task in tasks)


async def _all_works(world: OutageWorld) -> bool:
    try:
        return not any((await ask(await world.prepare())).values())
    except Unavailable:  # of what prepares it
        return False


async def _matches(tasks: Tasks, blocks: int) -> bool:
    view = await tasks.view()
    return view is not None and view.matched_blocks == blocks


async def _hears_a_cancel(world: OutageWorld, tasks: Tasks) -> bool:
    head = await world.claimed()
    await world.results.cancel(world.model, head.request_id, "enough")
    return bool(tasks.cancelled)  # perhaps of a round before
