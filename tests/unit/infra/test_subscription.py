"""Followed: the order and the bounds of what one reader gets."""

import asyncio

import pytest

from infra.subscription import BUFFER_EVENTS, Followed, Registry
from schemas.errors import TriptychError
from schemas.events import Event, Finished, Token, Usage


class Calls:
    def __init__(self) -> None:
        self.room: list[Followed] = []
        self.closed: list[Followed] = []

    def follow(self, after_seq: int = 0, request_id: str = "r") -> Followed:
        return Followed("m", request_id, after_seq, on_room=self.room.append, on_close=self.closed.append)


def tokens(first: int, last: int) -> list[Event]:
    return [Token(1, seq, 0, "t", [seq]) for seq in range(first, last + 1)]


def end(seq: int) -> Event:
    return Finished(1, seq, Usage(1, 1))


async def test_duplicates_are_dropped_also_inside_a_batch() -> None:
    one = Calls().follow()
    one.feed(tokens(1, 3))
    one.feed(tokens(2, 4))
    assert one.ready() == tokens(1, 4)


async def test_what_lies_beyond_a_gap_waits_until_it_is_filled() -> None:
    one = Calls().follow()
    one.feed(tokens(3, 4))
    one.feed(tokens(6, 6))
    assert one.missing
    assert one.ready() == []
    one.feed(tokens(1, 2))
    assert one.ready() == tokens(1, 4)
    one.feed(tokens(5, 5))
    assert one.ready() == tokens(5, 6)
    assert not one.missing


async def test_terminal_event_kept_aside_ends_the_stream_once_it_is_reached() -> None:
    calls = Calls()
    one = calls.follow()
    one.feed([end(2)])
    assert calls.closed == []
    one.feed(tokens(1, 1))
    assert calls.closed == [one]
    assert [event.seq async for event in one] == [1, 2]


async def test_neither_buffer_nor_what_is_kept_aside_grows_past_the_bound() -> None:
    one = Calls().follow()
    for seq in range(2, 5 * BUFFER_EVENTS):
        one.feed(tokens(seq, seq))
    one.feed(tokens(1, 1))
    first = one.ready()
    assert first == tokens(1, BUFFER_EVENTS)
    assert one.behind


async def test_reader_that_lagged_asks_for_more_when_half_of_it_is_read() -> None:
    calls = Calls()
    one = calls.follow()
    one.feed(tokens(1, BUFFER_EVENTS + 5))
    assert one.full
    for _ in range(BUFFER_EVENTS // 2 - 1):
        await anext(one)
    assert calls.room == []
    await anext(one)
    assert calls.room == [one]


async def test_reader_that_keeps_up_never_asks() -> None:
    calls = Calls()
    one = calls.follow()
    for seq in range(1, 3 * BUFFER_EVENTS):
        one.feed(tokens(seq, seq))
        await anext(one)
    assert calls.room == []


async def test_failure_comes_after_what_had_arrived_and_stays() -> None:
    one = Calls().follow()
    one.feed(tokens(1, 1))
    one.fail(TriptychError("replay_lost", "gone"))
    assert (await anext(one)).seq == 1
    for _ in range(2):
        with pytest.raises(TriptychError):
            await anext(one)


async def test_cancelled_read_loses_no_event() -> None:
    one = Calls().follow()
    reading = asyncio.ensure_future(anext(one))
    await asyncio.sleep(0)
    one.feed(tokens(1, 1))
    reading.cancel()
    await asyncio.wait([reading])
    assert (await anext(one)).seq == 1


async def test_nothing_is_taken_after_the_end_or_after_close() -> None:
    calls = Calls()
    ended, closed = calls.follow(), calls.follow()
    ended.feed([end(1)])
    ended.feed(tokens(2, 2))
    closed.close()
    closed.feed(tokens(1, 1))
    assert [event.seq async for event in ended] == [1]
    assert [event async for event in closed] == []
    assert calls.closed == [ended, closed]


async def test_registry_forgets_what_is_discarded_and_only_that() -> None:
    calls, registry = Calls(), Registry()
    first, second, other = calls.follow(), calls.follow(), calls.follow(request_id="other")
    for one in (first, second, other):
        registry.add(one)
    walked = []
    for one in registry.of("r"):
        walked.append(one)
        registry.discard(one)
    registry.discard(first)
    assert walked == [first, second]
    assert list(registry) == [other]
    assert len(registry) == 1
