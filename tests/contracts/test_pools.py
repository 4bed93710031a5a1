"""What every stateless pool promises, on every bus."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from infra.faults import Missing, Refused, Unavailable
from schemas.errors import TriptychError
from schemas.refs import BlobRef
from tests.contracts.pool_worlds import PARTITIONS, Bench, KafkaWorld, World, job, kafka_world, memory_world
from tests.waiting import until
from topics import opener

KAFKA = pytest.param("kafka", marks=pytest.mark.services)


@pytest.fixture(params=["memory", KAFKA])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        async with memory_world() as world:
            yield world
    else:
        async with kafka_world(request.getfixturevalue("kafka")) as world:
            yield world


@pytest.fixture
async def real(kafka: str) -> AsyncIterator[KafkaWorld]:
    async with kafka_world(kafka) as world:
        yield world


async def test_jobs_of_all_partitions_are_done_once_and_committed(world: World) -> None:
    bench = Bench()
    for number in range(12):
        await world.send(f"r{number}", number % PARTITIONS)
    await world.member(bench)
    await bench.has_done(*(f"r{number}" for number in range(12)))
    for partition in range(PARTITIONS):
        await world.has_committed(partition, 3)
    assert not bench.twice


async def test_work_is_told_the_headers_that_go_on_with_its_request(world: World) -> None:
    bench = Bench()
    await world.member(bench)
    headers = [("user", b"u"), ("x-request-id", b"theirs")]
    await world.producer.send(world.topic, job("r"), partition=0, headers=headers)
    await bench.has_done("r")
    assert bench.headers == {"r": [("x-request-id", b"theirs")]}


async def test_a_long_job_holds_up_no_other_and_the_commit_waits_for_it(world: World) -> None:
    bench = Bench()
    bench.hold("long")
    await world.member(bench)
    await world.send("before", 0)
    await world.send("long", 0)
    await world.send("after", 0)
    await world.send("elsewhere", 1)
    await bench.has_done("before", "after", "elsewhere")
    await world.has_committed(1, 1)
    await world.has_committed(0, 1)
    bench.let_go("long")
    await world.has_committed(0, 3)


async def test_no_more_jobs_are_under_way_than_asked_for(world: World) -> None:
    bench = Bench()
    for number in range(6):
        bench.hold(f"r{number}")
        await world.send(f"r{number}", number % PARTITIONS)
    await world.member(bench, most=2)
    begun: set[str] = set()
    for count in range(2, 7):
        await until(lambda count=count: len(bench.begun) == count)
        bench.let_go(next(one for one in bench.begun if one not in begun))
        begun.add(next(one for one in bench.begun if one not in begun))
    await bench.has_done(*bench.begun[:5])
    bench.let_go(bench.begun[5])
    await bench.has_done(*(f"r{number}" for number in range(6)))


async def test_a_job_is_tried_again_until_what_it_needs_is_back(world: World) -> None:
    bench = Bench()
    bench.faults["r"] = [Unavailable("the store is away"), Unavailable("the broker is")]
    await world.send("r", 0)
    await world.send("s", 0)
    await world.member(bench)
    await bench.has_done("r", "s")
    await world.has_committed(0, 2)
    assert not bench.given_up


async def test_a_bug_on_one_job_ends_that_request_and_nothing_else(world: World) -> None:
    bench = Bench()
    bench.faults["r"] = [ZeroDivisionError("a bug")]
    bench.faults["s"] = [TriptychError("internal", "not to be retried")]
    for request_id in ("r", "s", "t"):
        await world.send(request_id, 0)
    await world.member(bench)
    await bench.has_done("t")
    await world.has_committed(0, 3)
    assert {one: str(error) for one, error in bench.given_up.items()} == {"r": "a bug", "s": "not to be retried"}


async def test_a_job_that_can_be_neither_done_nor_given_up_becomes_a_dead_letter(world: World) -> None:
    bench = Bench()
    bench.faults["r"] = [asyncio.CancelledError("from inside")]  # type: ignore[list-item]  # a library's own mistake
    bench.faults["s"] = [ZeroDivisionError("a bug")]
    bench.cannot_give_up = {"s"}
    for request_id in ("r", "s", "t"):
        await world.send(request_id, 0)
    await world.member(bench)
    await bench.has_done("t")
    await world.has_committed(0, 3)
    assert list(bench.given_up) == ["r"]
    (letter,) = await world.behind.letters()
    assert (letter.offset, letter.reason) == (1, "failed") and "ZeroDivisionError: a bug" in letter.detail


async def test_records_that_are_no_jobs_become_dead_letters_and_the_rest_is_done(world: World) -> None:
    bench = Bench()
    await world.send("before", 0)
    await world.behind.raw(0, [(None, b"\x00 no job", []), (None, None, [(b"why", None)])])
    await world.send("after", 0)
    await world.member(bench)
    await bench.has_done("before", "after")
    await world.has_committed(0, 4)
    assert sorted(one.reason for one in await world.behind.letters()) == ["empty", "undecodable"]


async def test_a_store_that_refuses_holds_up_what_needs_it_until_it_is_mended_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "REFUSED_PAUSE_S", 0.05)
    monkeypatch.setattr(opener, "REFUSED_TRIES", 1_000)
    bench, refused = Bench(), asyncio.Event()

    async def refuses(ref: BlobRef) -> bytes:
        refused.set()
        raise Refused("wrong credentials")

    await world.producer.send(world.topic, job("big", "x" * 100_000), partition=0)
    await world.send("after", 0)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(world.blobs, "get", refuses)
        await world.member(bench)
        await bench.has_done("after")
        await asyncio.wait_for(refused.wait(), 10)
        assert bench.done == ["after"]
    await bench.has_done("big")
    await world.has_committed(0, 2)
    assert await world.behind.letters() == []


async def test_a_closed_member_leaves_its_unfinished_jobs_to_the_next(world: World) -> None:
    first, second = Bench(), Bench()
    first.hold("long")
    await world.send("short", 0)
    await world.send("long", 0)
    member = await world.member(first)
    await first.has_done("short")
    await until(lambda: "long" in first.begun)
    await world.has_committed(0, 1)
    await member.close()
    await world.member(second)
    await second.has_done("long")
    assert second.done == ["long"]


async def test_what_is_under_way_goes_on_when_a_member_retires(world: World) -> None:
    bench = Bench()
    bench.hold("long")
    await world.send("long", 0)
    member = await world.member(bench)
    await until(lambda: "long" in bench.begun)
    await member.retire()
    assert not await member.drained(0.1)
    bench.let_go("long")
    assert await member.drained(10.0)
    assert bench.done == ["long"]


@pytest.mark.services
async def test_headers_that_are_no_text_neither_lose_nor_stop_anything(real: KafkaWorld) -> None:
    bench = Bench()
    await real.send("a", 0)
    await real.send("b", 1)
    await real.behind.raw(0, [(None, b"x", [(b"\xff\xfe", b"name")])])
    await real.behind.raw(1, [(None, b"x", [(b"correlation_id", None), (b"content-type", b"\xff")])])
    await real.send("c", 0)
    await real.send("d", 1)
    await real.member(bench)
    await bench.has_done("a", "b", "c", "d")
    await real.has_committed(0, 3)
    await real.has_committed(1, 3)
    assert sorted(one.reason for one in await real.behind.letters()) == ["undecodable", "unreadable"]


@pytest.mark.services
async def test_a_member_tells_what_it_reads_and_no_more(real: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "topics")
    bench = Bench()
    await real.send("r", 0)
    member = await real.member(bench)
    await bench.has_done("r")
    await member.close()
    said = [one.getMessage() for one in caplog.records if one.name == "topics.pools"]
    assert any("assigned to partitions: (TopicPartition" in one for one in said), said
    assert not [one for one in said if one.startswith(("Auto create topics", "callback for"))]


@pytest.mark.services
async def test_a_topic_that_does_not_exist_is_told_at_start(real: KafkaWorld) -> None:
    real.topic = "decode.nothing"
    with pytest.raises(Missing, match="triptych topics create"):
        await real.member(Bench())


@pytest.mark.services
@pytest.mark.timeout(180)
async def test_a_second_member_takes_its_share_and_nothing_under_way_is_begun_anew(real: KafkaWorld) -> None:
    first, second = Bench(), Bench()
    held = [f"held{partition}" for partition in range(PARTITIONS)]
    for partition, request_id in enumerate(held):
        first.hold(request_id)
        second.hold(request_id)
        await real.send(request_id, partition)
    await real.member(first)
    await until(lambda: set(held) <= set(first.begun), 20.0)
    other = await real.member(second)
    # Whoever has a partition reads its unfinished job; the one who has it under way already does not begin it again.
    await until(lambda: len(second.begun) == PARTITIONS // 2, 40.0)
    assert not first.twice
    for request_id in held:
        first.let_go(request_id)
        second.let_go(request_id)
    for partition in range(PARTITIONS):
        await real.has_committed(partition, 1)
        await real.send(f"more{partition}", partition)
    await until(lambda: len([one for one in first.done + second.done if one.startswith("more")]) == PARTITIONS, 20.0)
    assert {one for one in second.done if one.startswith("more")}

    await other.close()
    for partition in range(PARTITIONS):
        await real.send(f"last{partition}", partition)
    await first.has_done(*(f"last{partition}" for partition in range(PARTITIONS)), within_s=30.0)


@pytest.mark.services
@pytest.mark.timeout(180)
async def test_members_that_go_at_the_same_moment_do_not_spoil_the_group(real: KafkaWorld) -> None:
    for turn in range(3):
        bench = Bench()
        first, second = await real.member(bench), await real.member(bench)
        await real.send(f"r{turn}", turn)
        await bench.has_done(f"r{turn}", within_s=30.0)
        await asyncio.gather(first.close(), second.close())
