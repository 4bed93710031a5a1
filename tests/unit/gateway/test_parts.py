"""An answer and its parts as one stream: what comes when, whatever is ready first, and what ends it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gateway.delivery import Piece
from gateway.parts import QUEUED, Parts
from infra.memory import MemoryFollower, MemoryHub, MemoryResults
from infra.ports import Incarnation, Outgoing
from infra.subscription import Followed
from schemas.errors import TriptychError
from schemas.events import Cancelled, Event, Failed, Finished, Made, Part, Progress, Restarted, Token, Usage
from schemas.jobs import Head
from schemas.refs import BlobRef
from tests.waiting import until

WORKER = Incarnation("w", 1)


def head(request_id: str) -> Head:
    return Head(request_id, "m", deadline_at=4e9, created_at=0, reply_to="gw")


class World:
    """A request "r" and its parts, told by hand."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.hub.alive["m", "w"] = 1
        self.results = MemoryResults(self.hub)
        self.follower = MemoryFollower(self.hub, "gw")
        self.cancelled: list[str] = []
        self.heard_of: list[Event] = []
        self.broken: Exception | None = None
        self.slow: dict[str, asyncio.Event] = {}
        self._seqs: dict[str, int] = {}

    async def tell(self, request_id: str, *events: Event) -> None:
        if request_id not in self._seqs:
            await self.results.claim(head(request_id), WORKER, 9)

        for event in events:
            self._seqs[request_id] = seq = self._seqs.get(request_id, 0) + 1
            numbered = msgspec.structs.replace(event, attempt=1, seq=seq)
            assert await self.results.append([Outgoing(head(request_id), [numbered])]) == ["stored"]

    def follow(self, part: Part) -> Followed:
        return self.follower.follow("m", part.request_id, begun=True)

    async def deliver(self, part: Part, made: Made) -> Piece:
        if self.broken is not None:
            raise self.broken
        if made.ref.key in self.slow:
            await self.slow[made.ref.key].wait()
        return Piece(part, made, data=made.ref.key.encode())

    async def cancel(self, request_id: str, reason: str) -> None:
        self.cancelled.append(request_id)

    async def heard(self, event: Event) -> None:
        self.heard_of.append(event)


@asynccontextmanager
async def following() -> AsyncIterator[tuple[World, Parts]]:
    world = World()
    await world.follower.start()
    main = world.follower.follow("m", "r")
    async with asyncio.timeout(10), Parts("r", main, world) as parts:
        yield world, parts
    main.close()
    assert world.follower.following == 0


def token(text: str) -> Token:
    return Token(0, 0, 0, text, [1])


def part(number: int, kind: Any = "audio", index: int = 0, request_id: str = "") -> Part:
    return Part(0, 0, index, number, kind, request_id or f"p{number}")


def made(key: str, number: int = 0) -> Made:
    return Made(0, 0, "audio", BlobRef(key, "", 1), number)


FINISHED = Finished(0, 0, Usage(1, 1))


async def all_of(parts: Parts) -> list[str]:
    """Everything up to the end, in short."""
    found: list[str] = []
    while not found or found[-1] not in ("Finished", "Failed", "Cancelled"):
        told = await parts.__anext__()
        for one in [told, *parts.ready()]:
            match one:
                case Token():
                    found.append(one.text)
                case Piece():
                    found.append(one.data.decode())
                case _:
                    found.append(type(one).__name__)
    return found


async def test_an_answer_without_parts_is_what_the_request_tells() -> None:
    async with following() as (world, parts):
        await world.tell("r", token("a"), token("b"), FINISHED)
        assert await all_of(parts) == ["a", "b", "Finished"]
    assert [type(one).__name__ for one in world.heard_of] == ["Token", "Token", "Finished"]
    assert world.cancelled == []


async def test_the_end_waits_for_all_parts() -> None:
    async with following() as (world, parts):
        await world.tell("r", part(0), part(1), FINISHED)
        await world.tell("p0", made("x"), FINISHED)
        await asyncio.sleep(0)
        told = [await parts.__anext__() for _ in range(3)]
        assert isinstance(told[2], Piece)
        waiting = asyncio.ensure_future(parts.__anext__())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await world.tell("p1", FINISHED)
        assert isinstance(await waiting, Finished)
    assert world.cancelled == []


async def test_pieces_come_in_the_order_of_their_parts_and_text_waits_for_none() -> None:
    async with following() as (world, parts):
        await world.tell("r", token("a"), part(0), token("b"), part(1), token("c"))
        await world.tell("p1", made("y0"), made("y1", 1), FINISHED)
        await until(lambda: parts._queue.qsize() == 5)
        await world.tell("p0", made("x0"), made("x1", 1), FINISHED)
        await world.tell("r", FINISHED)
        assert await all_of(parts) == ["a", "Part", "b", "Part", "c", "x0", "x1", "y0", "y1", "Finished"]


async def test_kinds_and_choices_do_not_wait_for_each_other() -> None:
    async with following() as (world, parts):
        await world.tell("r", part(0), part(1, "image"), part(0, index=1, request_id="other"), FINISHED)
        await world.tell("p1", made("picture"), FINISHED)
        await world.tell("other", made("second choice"), FINISHED)
        told = [await parts.__anext__() for _ in range(5)]
        assert {one.data for one in told if isinstance(one, Piece)} == {b"picture", b"second choice"}
        await world.tell("p0", made("sound"), FINISHED)
        assert await all_of(parts) == ["sound", "Finished"]


async def test_a_part_that_was_faster_than_the_news_of_it_is_heard_at_once() -> None:
    async with following() as (world, parts):
        await world.tell("p0", made("x"), FINISHED)
        await world.tell("r", part(0), FINISHED)
        assert await all_of(parts) == ["Part", "x", "Finished"]


async def test_pieces_that_a_part_s_new_attempt_makes_again_are_told_once() -> None:
    async with following() as (world, parts):
        await world.tell("r", part(0), FINISHED)
        await world.tell("p0", made("x"), Restarted(0, 0), made("again"), made("y", 1), FINISHED)
        assert await all_of(parts) == ["Part", "x", "y", "Finished"]


@pytest.mark.parametrize("end", [Failed(0, 0, "decoder_failed", "why"), Cancelled(0, 0, "why")])
async def test_a_lost_part_ends_the_answer_and_everything_of_it(end: Failed | Cancelled) -> None:
    async with following() as (world, parts):
        await world.tell("r", token("a"), part(0), part(1))
        await world.tell("p0", end)
        assert (await all_of(parts))[-1] == type(end).__name__
    assert sorted(world.cancelled) == ["p1", "r"]


async def test_a_lost_part_of_a_finished_request_ends_the_answer() -> None:
    async with following() as (world, parts):
        await world.tell("r", part(0), FINISHED)
        await world.tell("p0", Failed(0, 0, "decoder_failed", "why"))
        assert await all_of(parts) == ["Part", "Failed"]
    assert world.cancelled == []


async def test_a_failed_request_does_not_wait_for_its_parts() -> None:
    async with following() as (world, parts):
        await world.tell("r", part(0), Failed(0, 0, "engine_died", "why"))
        assert await all_of(parts) == ["Part", "Failed"]
    assert world.cancelled == ["p0"]


async def test_a_new_attempt_drops_the_parts_of_the_lost_one() -> None:
    async with following() as (world, parts):
        world.slow["x"] = asyncio.Event()
        await world.tell("r", part(0))
        await world.tell("p0", made("x"))
        await world.tell("r", Restarted(0, 0), part(0, request_id="q0"), FINISHED)
        await until(lambda: world.cancelled == ["p0"])
        world.slow["x"].set()
        await world.tell("q0", made("y"), FINISHED)
        assert await all_of(parts) == ["Part", "Restarted", "Part", "y", "Finished"]


async def test_a_part_that_is_asked_for_again_takes_the_place_of_the_first() -> None:
    async with following() as (world, parts):
        await world.tell("r", part(0), part(1), part(0, request_id="again"), FINISHED)
        await until(lambda: world.cancelled == ["p0"])
        await world.tell("again", made("x"), FINISHED)
        await world.tell("p1", made("y"), FINISHED)
        assert sorted(await all_of(parts)) == ["Finished", "Part", "Part", "Part", "x", "y"]


async def test_whoever_leaves_early_cancels_what_runs() -> None:
    async with following() as (world, parts):
        await world.tell("r", token("a"), part(0), part(1))
        await world.tell("p0", made("x"), FINISHED)
        await until(lambda: parts._queue.qsize() == 4)
    assert world.cancelled == ["p1"]


async def test_what_goes_wrong_in_the_background_is_raised_to_the_reader() -> None:
    async with following() as (world, parts):
        world.broken = TriptychError("internal", "not to be found")
        await world.tell("r", part(0))
        await world.tell("p0", made("x"), FINISHED)
        with pytest.raises(TriptychError, match="not to be found"):
            await all_of(parts)
        with pytest.raises(TriptychError, match="not to be found"):
            await parts.__anext__()


async def test_a_stream_that_stops_without_an_end_stops_here_too() -> None:
    async with following() as (world, parts):
        await world.tell("r", token("a"))
        assert isinstance(await parts.__anext__(), Token)
        await world.follower.close()
        with pytest.raises(StopAsyncIteration):
            await parts.__anext__()


async def test_a_cut_comes_next_unless_the_end_is_there_already() -> None:
    async with following() as (world, parts):
        await world.tell("r", token("a"), part(0), token("b"))
        await until(lambda: parts._queue.qsize() == 3)
        parts.cut(Failed(0, 0, "deadline_exceeded", "too late"))
        assert await all_of(parts) == ["Failed"]
    async with following() as (world, parts):
        await world.tell("r", token("a"), FINISHED)
        await until(lambda: parts._queue.qsize() == 2)
        parts.cut(Failed(0, 0, "deadline_exceeded", "too late"))
        assert await all_of(parts) == ["a", "Finished"]


async def test_progress_is_mentioned_and_never_waited_with() -> None:
    async with following() as (world, parts):
        await world.tell("r", part(0))
        await world.tell("p0", *(Progress(0, 0, number, 999) for number in range(2 * QUEUED)), made("x"), FINISHED)
        await world.tell("r", FINISHED)
        found = await all_of(parts)
        assert found[-2:] == ["x", "Finished"]
        assert 0 < found.count("Progress") <= 2 * QUEUED


async def test_a_reader_that_does_not_read_holds_up_the_streams_not_the_memory() -> None:
    async with following() as (world, parts):
        await world.tell("r", *(token("t") for _ in range(4 * QUEUED)))
        await asyncio.sleep(0.05)
        assert parts._queue.qsize() == QUEUED
        await world.tell("r", FINISHED)
        assert len(await all_of(parts)) == 4 * QUEUED + 1


@pytest.mark.parametrize("seed", range(20))
async def test_any_order_of_events_gives_every_piece_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    stories = {
        f"p{number}": [made(f"{number}.{one}", one) for one in range(chance.randint(0, 3))] for number in range(4)
    }
    async with following() as (world, parts):
        reading = asyncio.ensure_future(all_of(parts))
        told: dict[str, list[Any]] = {name: [*story, FINISHED] for name, story in stories.items()}
        told["r"] = [one for number in range(4) for one in (token(f"t{number}"), part(number))] + [FINISHED]
        while told:
            name = chance.choice(list(told))
            await world.tell(name, told[name].pop(0))
            if not told[name]:
                del told[name]
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        found = await reading
    assert [one for one in found if "." in one] == [one.ref.key for story in stories.values() for one in story]
    assert [one for one in found if one.startswith("t")] == ["t0", "t1", "t2", "t3"]
    assert world.cancelled == []
