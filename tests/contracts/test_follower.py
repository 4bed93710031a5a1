"""Follower, in memory and on Redis: every event once, in order, to the end, whatever becomes of the connection."""

import asyncio
import gc

import msgspec
import pytest

from infra import keys
from infra.ports import Outgoing, Subscription
from infra.subscription import BUFFER_EVENTS
from schemas.errors import TriptychError
from schemas.events import EventBatch, Failed, Restarted
from schemas.jobs import Head
from tests.contracts.result_worlds import ALICE, BOB, RedisWorld, World, finished, redis_world, tokens
from tests.waiting import until


async def rest_of(one: Subscription) -> list[int]:
    """The seqs of all events to the end."""
    async with asyncio.timeout(10):
        return [event.seq async for event in one]


def follow(world: World, head: Head, after_seq: int = 0) -> Subscription:
    return world.follower.follow(world.model, head.request_id, after_seq)


async def test_events_arrive_in_order_and_iteration_ends_with_the_terminal_one(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    await world.append(head, *tokens(1, 2))
    await world.append(head, *tokens(3, 3), finished(4))
    assert [event async for event in one] == [*tokens(1, 3), finished(4)]


async def test_each_event_reaches_a_waiting_reader_at_once(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    reading = asyncio.ensure_future(anext(one))
    await asyncio.sleep(0)
    await world.append(head, *tokens(1, 1))
    assert await asyncio.wait_for(reading, 1.0) == tokens(1, 1)[0]


async def test_events_of_two_attempts_make_one_stream(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    await world.append(head, *tokens(1, 2))
    await world.kill(ALICE)
    await world.revive(BOB)
    await world.results.claim(head, BOB, 3)
    await world.append(head, Restarted(2, 3, "bob"), *tokens(4, 5, attempt=2), finished(6, attempt=2))
    assert [event.attempt async for event in one] == [1, 1, 2, 2, 2, 2]


async def test_gateways_last_word_reaches_the_reader(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    await world.append(head, *tokens(1, 2))
    await world.results.end(head, Failed(0, 0, "deadline_exceeded", "too late"))
    assert await rest_of(one) == [1, 2, 3]


async def test_ready_gives_what_has_arrived_without_waiting(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    assert one.ready() == []
    await world.append(head, *tokens(1, 3))
    first = await anext(one)
    assert [first, *one.ready()] == tokens(1, 3)


async def test_requests_do_not_see_each_others_events(world: World) -> None:
    heads = [await world.claimed() for _ in range(3)]
    following = [follow(world, head) for head in heads]
    await world.results.append([Outgoing(head, [*tokens(1, 1), finished(2)]) for head in heads[:2]])
    assert [await rest_of(one) for one in following[:2]] == [[1, 2], [1, 2]]
    assert following[2].ready() == []


async def test_two_readers_of_one_request_both_get_all_of_it(world: World) -> None:
    head = await world.claimed()
    following = [follow(world, head) for _ in range(2)]
    await world.append(head, *tokens(1, 1), finished(2))
    assert [await rest_of(one) for one in following] == [[1, 2], [1, 2]]


async def test_client_that_comes_back_continues_after_the_seq_it_has(world: World) -> None:
    head = await world.claimed()
    await world.append(head, *tokens(1, 4))
    one = follow(world, head, after_seq=2)
    await world.append(head, finished(5))
    assert await rest_of(one) == [3, 4, 5]


async def test_client_that_comes_back_after_the_end_is_told_so(world: World) -> None:
    head = await world.claimed()
    await world.append(head, *tokens(1, 1), finished(2))
    assert await rest_of(follow(world, head, after_seq=1)) == [2]
    assert await rest_of(follow(world, head, after_seq=2)) == []


async def test_request_that_is_no_longer_kept_is_an_error_and_no_silence(world: World) -> None:
    one = follow(world, world.head(), after_seq=7)
    with pytest.raises(TriptychError) as caught:
        await rest_of(one)
    assert caught.value.code == "replay_lost"


async def test_what_was_published_while_the_connection_was_down_is_read_from_the_stream(world: World) -> None:
    head, untouched = await world.claimed(), await world.claimed()
    one, other = follow(world, head), follow(world, untouched)
    await world.append(head, *tokens(1, 2))
    assert (await anext(one)).seq == 1
    await world.hang_up()
    await world.append(head, *tokens(3, 5), finished(6))
    await world.reconnect()
    assert await rest_of(one) == [2, 3, 4, 5, 6]
    await world.append(untouched, finished(1))
    assert await rest_of(other) == [1]


async def test_publication_before_the_connection_came_back_is_not_doubled(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    for seq in range(1, 30):
        if seq % 10 == 5:
            await world.hang_up()
        await world.append(head, *tokens(seq, seq))
        if seq % 10 == 8:
            await world.reconnect()
    await world.append(head, finished(30))
    assert await rest_of(one) == list(range(1, 31))


async def test_reader_far_behind_gets_everything_though_little_is_kept_for_it(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    last = 5 * BUFFER_EVENTS
    for seq in range(1, last, 10):
        await world.append(head, *tokens(seq, min(seq + 9, last - 1)))
    await world.append(head, finished(last))
    got = [(await anext(one)).seq]
    got += [event.seq for event in one.ready()]
    assert len(got) <= BUFFER_EVENTS + 1
    got += await rest_of(one)
    assert got == list(range(1, last + 1))


async def test_reader_behind_the_replay_window_is_told_that_events_are_lost(world: World) -> None:
    head = await world.claimed()
    await world.hang_up()
    one = follow(world, head)
    for seq in range(1, 200):
        await world.append(head, *tokens(seq, seq))
    await world.trim(head, 100)
    await world.reconnect()
    with pytest.raises(TriptychError) as caught:
        await rest_of(one)
    assert caught.value.code == "replay_lost"


async def test_closed_subscription_ends_its_reader_and_leaves_nothing(world: World) -> None:
    head = await world.claimed()
    one = follow(world, head)
    reading = asyncio.ensure_future(rest_of(one))
    await asyncio.sleep(0)
    one.close()
    one.close()
    assert await reading == []
    assert world.follower.following == 0


async def test_closing_the_follower_ends_all_readers(world: World) -> None:
    reading = asyncio.ensure_future(rest_of(follow(world, world.head())))
    await asyncio.sleep(0)
    await world.follower.close()
    assert await reading == []


async def test_nothing_is_left_of_two_hundred_streams(world: World) -> None:
    gc.collect()
    tasks, objects = len(asyncio.all_tasks()), count_followed()
    for number in range(200):
        head = await world.claimed()
        one = follow(world, head)
        await world.append(head, *tokens(1, 1))
        if number % 2:
            await world.append(head, finished(2))
            await rest_of(one)
        else:
            await anext(one)
            one.close()
    del one
    gc.collect()
    assert world.follower.following == 0
    assert (len(asyncio.all_tasks()), count_followed()) == (tasks, objects)


async def killed(world: RedisWorld) -> bool:
    """Whether there was a connection to kill: right after the last one it may still be coming back."""
    return bool(await world.redis.client_kill_filter(_type="pubsub"))


@pytest.mark.services
async def test_killed_pubsub_connections_in_mid_stream_lose_and_double_nothing(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        heads = [await world.claimed() for _ in range(20)]
        reading = [asyncio.ensure_future(rest_of(follow(world, head))) for head in heads]
        for seq in range(1, 200):
            await world.results.append([Outgoing(head, tokens(seq, seq)) for head in heads])
            if seq % 40 == 20:
                await until(lambda: killed(world))
        await world.results.append([Outgoing(head, [finished(200)]) for head in heads])
        for got in await asyncio.gather(*reading):
            assert got == list(range(1, 201))


@pytest.mark.services
async def test_lost_last_publication_is_found_after_some_silence(redis_url: str) -> None:
    """Nothing follows a terminal event, so no gap would ever tell that it is missing."""
    async with redis_world(redis_url, silence_s=0.3) as world:
        head = await world.claimed()
        one = follow(world, head)
        await world.append(head, *tokens(1, 1))
        assert (await anext(one)).seq == 1
        silent_head = elsewhere(head)
        assert await world.append(silent_head, finished(2)) == "stored"
        assert await rest_of(one) == [2]


@pytest.mark.services
async def test_lost_publication_in_mid_stream_is_repaired_by_the_next_one(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head = await world.claimed()
        one = follow(world, head)
        await world.append(elsewhere(head), *tokens(1, 3))
        await world.append(head, *tokens(4, 4))
        got = [await asyncio.wait_for(anext(one), 5.0) for _ in range(4)]
        assert [event.seq for event in got] == [1, 2, 3, 4]


@pytest.mark.services
async def test_garbage_on_the_channel_deafens_nobody(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head = await world.claimed()
        one = follow(world, head)
        await world.redis.publish(keys.gateway(head.reply_to), b"\xc1 no message of ours")
        await world.append(head, finished(1))
        assert await rest_of(one) == [1]


@pytest.mark.services
async def test_garbage_in_a_stream_fails_that_request_alone(redis_url: str) -> None:
    async with redis_world(redis_url, silence_s=0.3) as world:
        bad, good = await world.claimed(), await world.claimed()
        await world.redis.xadd(keys.replay(world.model, bad.request_id), {"b": b"\xc1"}, id="1-0")
        broken, whole = follow(world, bad), follow(world, good)
        with pytest.raises(TriptychError):
            await rest_of(broken)
        await world.append(good, finished(1))
        assert await rest_of(whole) == [1]


@pytest.mark.services
async def test_store_that_comes_back_empty_is_an_error_for_streams_that_had_begun(redis_url: str) -> None:
    async with redis_world(redis_url, silence_s=0.3) as world:
        head, waiting = await world.claimed(), await world.claimed()
        one, unstarted = follow(world, head), follow(world, waiting)
        await world.append(head, *tokens(1, 1))
        assert (await anext(one)).seq == 1
        await world.redis.delete(keys.request(world.model, head.request_id), keys.replay(world.model, head.request_id))
        with pytest.raises(TriptychError) as caught:
            await rest_of(one)
        assert caught.value.code == "replay_lost"
        await world.append(waiting, finished(1))
        assert await rest_of(unstarted) == [1]


@pytest.mark.services
async def test_store_that_comes_back_without_the_last_second_is_an_error_and_no_endless_search(redis_url: str) -> None:
    async with redis_world(redis_url) as world:
        head = await world.claimed()
        one = follow(world, head)
        await world.append(head, *tokens(1, 1))
        assert (await anext(one)).seq == 1
        published = msgspec.msgpack.encode([EventBatch(head.request_id, tokens(3, 3))])
        await world.redis.publish(keys.gateway(head.reply_to), published)
        with pytest.raises(TriptychError) as caught:
            await rest_of(one)
        assert caught.value.code == "replay_lost"


def elsewhere(head: Head) -> Head:
    """The same request, with answers published where nobody listens."""
    return Head(head.request_id, head.model, head.deadline_at, head.created_at, "nowhere", streamed=True)


def count_followed() -> int:
    return sum(type(one).__name__ == "Followed" for one in gc.get_objects())


async def test_who_comes_after_the_beginning_and_says_so_hears_everything_at_once(world: World) -> None:
    head = await world.claimed()
    await world.append(head, *tokens(1, 2), finished(3))
    late = world.follower.follow(world.model, head.request_id, begun=True)
    assert await asyncio.wait_for(rest_of(late), 1.0) == [1, 2, 3]


async def test_who_comes_before_the_beginning_and_is_not_sure_misses_nothing(world: World) -> None:
    head = await world.claimed()
    early = world.follower.follow(world.model, head.request_id, begun=True)
    await asyncio.sleep(0)
    await world.append(head, *tokens(1, 2), finished(3))
    assert await rest_of(early) == [1, 2, 3]
