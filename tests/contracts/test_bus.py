"""One suite for both buses: in memory, and on whatever broker the tests are given."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest

from infra.faults import Missing, PortFault, Refused, Unavailable
from infra.hashing import content_ref
from infra.memory_blobs import MemoryBlobs
from infra.metrics import Metrics
from schemas.codec import decode_letter, decode_message, encode
from schemas.jobs import GenerateJob, Offloaded
from schemas.media import Embeds
from schemas.refs import BlobRef, payload_ref
from tests.contracts.bus_worlds import PARTITIONS, Sink, World, id_of, job, kafka_world, memory_world
from tests.waiting import until
from topics import names, opener
from topics.bus import FencedOff
from topics.checks import Belongs
from topics.dead_letters import DeadLetters


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.services)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        async with memory_world() as world:
            yield world
    else:
        async with kafka_world(request.getfixturevalue("kafka")) as world:
            yield world


async def send(world: World, *ids: str, partition: int = 0) -> None:
    for one in ids:
        await world.producer.send(world.topic, job(one), partition=partition)


async def test_jobs_of_one_partition_arrive_once_and_in_order(world: World) -> None:
    sent = [f"r{number}" for number in range(40)]
    await send(world, *sent)
    sink = Sink(await world.consumer())
    assert [id_of(one) for one in await sink.until(40)] == sent
    assert [one.at.offset for one in sink.got] == list(range(40))
    await sink.nothing_more()
    sink.done()


async def test_send_tells_where_it_was_stored(world: World) -> None:
    first = await world.producer.send(world.topic, job("r1"), partition=2, key=b"k", headers=[("h", b"v")])
    second = await world.producer.send(world.topic, job("r2"), partition=2)
    assert (first.topic, first.partition) == (world.topic, 2)
    assert second.offset == first.offset + 1


@pytest.mark.parametrize("prompt_tokens", [3, 40_000])  # on the topic, and by key
async def test_a_delivery_bears_the_headers_that_go_on_with_its_request(world: World, prompt_tokens: int) -> None:
    goes_on = [("x-request-id", b"theirs"), ("tracestate", b"a=1")]
    sink = Sink(await world.consumer())
    await world.producer.send(world.topic, job("r", prompt_tokens), partition=0, headers=[("user", b"u"), *goes_on])
    (got,) = await sink.until(1)
    assert got.headers == goes_on
    sink.done()


async def test_a_reader_that_comes_late_and_one_that_waits_both_get_it(world: World) -> None:
    await send(world, "early")
    sink = Sink(await world.consumer())
    await sink.until(1)
    await send(world, "late", partition=3)
    assert [id_of(one) for one in await sink.until(2)] == ["early", "late"]
    sink.done()


async def test_take_returns_no_more_than_asked_and_loses_nothing_of_the_rest(world: World) -> None:
    for number in range(30):
        await send(world, f"r{number}", partition=number % PARTITIONS)
    consumer = await world.consumer()
    seen: list[str] = []
    async with asyncio.timeout(15):
        while len(seen) < 30:
            taken = await consumer.take(4)
            assert len(taken) <= 4
            seen += [id_of(one) for one in taken]
            for one in taken:
                consumer.done(one)
    assert Counter(seen) == Counter(f"r{number}" for number in range(30))


async def test_the_oldest_job_goes_first_whatever_partition_it_waits_in(world: World) -> None:
    await send(world, *(f"crowd{number}" for number in range(6)), partition=0)
    await asyncio.sleep(0.005)  # stamps have milliseconds
    await send(world, "lone", partition=1)
    await asyncio.sleep(0.005)
    await send(world, *(f"late{number}" for number in range(6)), partition=0)
    consumer = await world.consumer()
    sink = Sink(consumer)
    await until(lambda: len(consumer.owned) == PARTITIONS)
    taken = [id_of(one) for one in await sink.until(13)]
    sink.done()
    assert taken.index("crowd5") < taken.index("late0")
    assert taken.index("lone") < taken.index("late5")


async def test_a_message_over_the_limit_goes_by_the_object_store_and_arrives_whole(world: World) -> None:
    big = job("big", prompt_tokens=40_000)
    assert len(encode(big)) > names.MAX_MESSAGE_BYTES
    await send(world, "before")
    await world.producer.send(world.topic, big, partition=0)
    await send(world, "after")
    assert await world.blobs.exists(payload_ref(encode(big)).key)
    sink = Sink(await world.consumer())
    got = {id_of(one): one.job for one in await sink.until(3)}  # fetching it holds up nobody behind it
    assert got.keys() == {"before", "big", "after"} and got["big"] == big
    sink.done()


async def test_only_the_finished_prefix_is_committed_and_a_new_owner_goes_on_from_there(world: World) -> None:
    await send(world, *(f"r{number}" for number in range(5)))
    consumer = world.unstarted("a")
    await consumer.start()
    got = []
    async with asyncio.timeout(15):
        while len(got) < 5:
            got += await consumer.take(5)
    for number in (0, 1, 3):  # 2 is still open, so 3 must not be skipped over
        consumer.done(got[number])
    await until(lambda: _is(world, 2))
    await consumer.close()
    sink = Sink(await world.consumer("b"))
    assert [id_of(one) for one in await sink.until(3)] == ["r2", "r3", "r4"]
    await sink.nothing_more()
    sink.done()
    await until(lambda: _is(world, 5))


async def _is(world: World, offset: int) -> bool:
    return await world.behind.committed(0) == offset


async def test_jobs_finished_just_before_the_close_are_committed(world: World) -> None:
    await send(world, "r0", "r1")
    consumer = world.unstarted("a")
    await consumer.start()
    got = []
    async with asyncio.timeout(15):
        while len(got) < 2:
            got += await consumer.take(5)
    for one in got:
        consumer.done(one)
    await consumer.close()
    assert await world.behind.committed(0) == 2


BROKEN = [
    pytest.param(b"\xc1 no message", "undecodable", id="bytes"),
    pytest.param(b'{"type":"generate","head":{}}', "undecodable", id="incomplete"),
    pytest.param(b'{"type":"tomorrow"}', "undecodable", id="unknown-kind"),
    pytest.param(b'{"type":' + b"[" * 50_000, "undecodable", id="deep-nesting"),
    pytest.param(b"", "undecodable", id="nothing"),
    pytest.param(None, "empty", id="null"),
]


@pytest.mark.parametrize("value, reason", BROKEN)
async def test_what_cannot_be_decoded_becomes_a_dead_letter_and_the_partition_moves_on(
    world: World, value: bytes | None, reason: str
) -> None:
    await send(world, "before")
    await world.behind.raw(0, [(b"key", value, [(b"h", b"v"), (b"null", None)])])
    await send(world, "after")
    sink = Sink(await world.consumer())
    assert [id_of(one) for one in await sink.until(2)] == ["before", "after"]
    (letter,) = await world.letters(1)
    assert (letter.topic, letter.partition, letter.offset, letter.reason) == (world.topic, 0, 1, reason)
    assert (letter.key, letter.value, letter.headers) == (b"key", value, [("h", b"v"), ("null", b"")])
    assert letter.detail
    sink.done()
    await until(lambda: _is(world, 3))


async def test_a_bad_record_at_the_end_is_committed_past_as_well(world: World) -> None:
    await world.behind.raw(0, [(None, b"\xc1", [])])
    consumer = await world.consumer()
    await Sink(consumer).nothing_more(takes=10)
    await until(lambda: _is(world, 1))
    assert len(await world.letters(1)) == 1


async def test_a_letter_that_would_be_too_big_keeps_its_value_in_the_object_store(world: World) -> None:
    value = b"\xc1" * (names.MAX_MESSAGE_BYTES - 10)  # fits a record, but not a letter around it
    await world.behind.raw(0, [(None, value, [])])
    await send(world, "after")
    sink = Sink(await world.consumer())
    await sink.until(1)
    (letter,) = await world.letters(1)
    assert letter.value is None and letter.value_ref is not None
    assert await world.blobs.get(letter.value_ref) == value
    sink.done()


async def test_a_claim_check_that_cannot_be_redeemed_becomes_a_dead_letter(world: World) -> None:
    gone = payload_ref(encode(job("gone")))
    nested = encode(Offloaded(gone))
    await world.blobs.put(payload_ref(nested), nested)
    other = payload_ref(encode(job("other")))
    world.blobs._objects[other.key] = encode(job("forged"))  # what a store must never do, and a digest catches
    for ref in (gone, payload_ref(nested), other):
        await world.behind.raw(0, [(None, encode(Offloaded(ref)), [])])
    await send(world, "after")
    sink = Sink(await world.consumer())
    assert [id_of(one) for one in await sink.until(1)] == ["after"]
    letters = sorted(await world.letters(3), key=lambda one: one.offset)
    assert [one.reason for one in letters] == ["undecodable"] * 3
    assert ["is gone" in letters[0].detail, "another reference" in letters[1].detail] == [True, True]
    assert "is not what was put there" in letters[2].detail
    sink.done()


class Stores(MemoryBlobs):
    """An object store that is away, or refuses, until it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: PortFault | None = None
        self.asked = 0

    async def get(self, ref: BlobRef) -> bytes:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return await super().get(ref)


@pytest.mark.parametrize("fault", [Unavailable("the store is away"), Refused("wrong credentials")])
async def test_an_outage_of_the_object_store_holds_up_what_needs_it_and_nothing_else(
    world: World, fault: PortFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "REFUSED_PAUSE_S", 0.05)
    monkeypatch.setattr(opener, "REFUSED_TRIES", 1_000)
    world.blobs = blobs = Stores()
    world.producer._blobs = blobs  # type: ignore[attr-defined]  # of either producer
    await world.producer.send(world.topic, job("big", prompt_tokens=40_000), partition=0)
    await send(world, "after")
    await world.producer.send(world.topic, job("elsewhere"), partition=1)
    blobs.fault = fault
    sink = Sink(await world.consumer())
    assert {id_of(one) for one in await sink.until(2)} == {"after", "elsewhere"}
    sink.done()
    await until(lambda: blobs.asked > 2)
    await sink.nothing_more()
    assert await world.behind.committed(0) in (None, 0)
    blobs.fault = None
    assert [id_of(one) for one in await sink.until(1)] == ["big"]
    sink.done()
    assert await world.behind.letters() == []

    async def is_committed() -> bool:
        await sink.nothing_more(1)
        return await world.behind.committed(0) == 2

    await until(is_committed)


async def test_a_payload_that_stays_refused_becomes_a_dead_letter(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "REFUSED_PAUSE_S", 0.01)
    world.blobs = blobs = Stores()
    world.producer._blobs = blobs  # type: ignore[attr-defined]  # of either producer
    await world.producer.send(world.topic, job("big", prompt_tokens=40_000), partition=0)
    await send(world, "after")
    blobs.fault = Refused("not this one")
    sink = Sink(await world.consumer())
    assert [id_of(one) for one in await sink.until(1)] == ["after"]
    await until(lambda: blobs.asked == opener.REFUSED_TRIES)
    (letter,) = await world.letters(1)
    assert letter.reason == "unreadable" and "refuses" in letter.detail
    sink.done()


WRONG = {
    "a deadline that is no time": ({"deadline_at": 1e300}, "undecodable"),
    "a deadline that never comes": ({"deadline_at": float("inf")}, "undecodable"),
    "a deadline that is no number": ({"deadline_at": float("nan")}, "undecodable"),
    "a deadline before all time": ({"deadline_at": -1.0}, "undecodable"),
    "a deadline in years": ({"deadline_at": 4e9}, "invalid"),
    "a model that nobody serves here": ({"model": "other"}, "misplaced"),
    "an id with a line break": ({"request_id": "a\nb"}, "undecodable"),
    "an id without an end": ({"request_id": "r" * 300}, "invalid"),
}


@pytest.mark.parametrize(("change", "reason"), WRONG.values(), ids=WRONG.keys())
async def test_a_field_that_cannot_be_costs_its_record_only(
    world: World, change: dict[str, object], reason: str
) -> None:
    wrong = msgspec.to_builtins(job("wrong"))
    wrong["head"] |= change
    await world.behind.raw(0, [(None, msgspec.msgpack.encode(wrong), [])])
    await send(world, "after")
    sink = Sink(await world.consumer())
    assert [id_of(one) for one in await sink.until(1)] == ["after"]
    assert [one.reason for one in await world.letters(1)] == [reason]
    sink.done()


async def test_a_job_names_no_objects_but_its_own_kind(world: World) -> None:
    stolen = Embeds(0, 1, "uploads/file-of-somebody-else", "d")
    await world.producer.send(world.topic, msgspec.structs.replace(job("thief"), embeds=[stolen]), partition=0)
    ref = await content_ref(b"secret", "text/plain", "media")
    await world.blobs.put(ref, b"secret")
    await world.behind.raw(0, [(None, encode(Offloaded(ref)), [])])
    await send(world, "after")
    sink = Sink(await world.consumer())
    assert [id_of(one) for one in await sink.until(1)] == ["after"]
    assert sorted(one.reason for one in await world.letters(2)) == ["invalid", "undecodable"]
    sink.done()


async def test_without_a_dead_letter_topic_letters_are_kept_in_the_store_and_the_partition_moves_on(
    world: World,
) -> None:
    class NoTopic:
        async def send(self, topic: str, *_: object, **__: object) -> None:
            raise Missing(f"topic {topic} does not exist")

    letters = DeadLetters(NoTopic(), world.blobs, Metrics(), world.clock)  # type: ignore[arg-type]  # only sends
    await world.behind.raw(0, [(None, b"\x00", [])])
    await send(world, "after")
    belongs = Belongs(GenerateJob, ("m",))
    sink = Sink(await world.consumer(opener=opener.Opener(belongs, world.blobs, letters, world.clock)))
    assert [id_of(one) for one in await sink.until(1)] == ["after"]

    def kept() -> list[str]:
        return [key for key in world.blobs._objects if key.startswith("letters/")]

    await until(kept)
    assert decode_letter(world.blobs._objects[kept()[0]]).offset == 0
    sink.done()


async def test_a_delivery_that_can_be_neither_run_nor_ended_is_set_aside(world: World) -> None:
    await send(world, "poison")
    sink = Sink(await world.consumer())
    (poison,) = await sink.until(1)
    await sink.consumer.set_aside(poison, ZeroDivisionError("a bug"))
    sink.got.clear()
    (letter,) = await world.letters(1)
    assert letter.reason == "failed" and "ZeroDivisionError: a bug" in letter.detail
    assert letter.value is not None and decode_message(letter.value) == poison.job


async def test_two_consumers_share_the_partitions_and_a_closed_ones_go_on_with_the_other(world: World) -> None:
    a = await world.consumer("a")
    await until(lambda: len(a.owned) == PARTITIONS)
    b = world.unstarted("b")
    await b.start()
    await until(lambda: len(a.owned) == len(b.owned) == PARTITIONS // 2)
    assert not a.owned & b.owned
    for partition in range(PARTITIONS):
        await send(world, f"p{partition}", partition=partition)
    sink = Sink(a)
    assert {one.at.partition for one in await sink.until(2)} == a.owned
    await sink.nothing_more()
    sink.done()
    await b.close()
    await until(lambda: len(a.owned) == PARTITIONS)
    assert len(await sink.until(2)) == 2
    sink.done()


async def test_a_kept_partition_reads_on_where_it_was_when_others_come_and_go(world: World) -> None:
    a = await world.consumer("a")
    sink = Sink(a)
    await send(world, "r0", "r1")
    await sink.until(2)  # open, not committed: only the position knows
    b = world.unstarted("b")
    await b.start()
    await until(lambda: len(a.owned) == PARTITIONS // 2)
    assert 0 in a.owned
    await send(world, "r2")
    assert [id_of(one) for one in await sink.until(3)] == ["r0", "r1", "r2"]
    await b.close()
    await until(lambda: len(a.owned) == PARTITIONS)
    await send(world, "r3")
    assert [id_of(one) for one in await sink.until(4)] == ["r0", "r1", "r2", "r3"]
    await sink.nothing_more()
    sink.done()


async def test_a_restart_under_the_same_name_fences_the_old_life_and_takes_over_at_once(world: World) -> None:
    await send(world, "r0")
    old = world.unstarted("a")
    await old.start()
    got = []
    async with asyncio.timeout(15):
        while not got:
            got += await old.take(1)
    new = await world.consumer("a")
    sink = Sink(new)
    assert [id_of(one) for one in await sink.until(1, within_s=3.0)] == ["r0"]
    assert new.me.epoch == old.me.epoch + 1
    with pytest.raises(FencedOff):
        async with asyncio.timeout(3):
            while True:
                await old.take(1)
    assert old.owned == frozenset()
    old.done(got[0])  # too late to matter: the new life has it
    await old.close()
    await asyncio.sleep(0.3)  # a commit's time
    assert await world.behind.committed(0) == 0
    sink.done()
    await until(lambda: _is(world, 1))


async def test_a_retired_consumer_has_handed_everything_back_and_its_open_jobs_are_read_again(world: World) -> None:
    await send(world, "r0", "r1")
    a = await world.consumer("a")
    sink = Sink(a)
    first, _ = await sink.until(2)
    a.done(first)
    await a.retire()
    assert a.owned == frozenset()
    assert (await world.leases.view(PARTITIONS)).owners == {}
    other = Sink(await world.consumer("b"))
    assert [id_of(one) for one in await other.until(1)] == ["r1"]
    other.done()


async def test_a_delivery_of_a_lost_tenure_does_not_move_the_commit(world: World) -> None:
    """Another may run that very job now: a commit past it would lose it if the other died."""
    await send(world, "r0")
    consumer = world.unstarted("a")
    await consumer.start()
    got = []
    async with asyncio.timeout(15):
        while not got:
            got += await consumer.take(1)
    world.leases._leases.clear()  # as if they had run out: the next tick takes them anew
    again = []
    async with asyncio.timeout(15):
        while not again:
            again += await consumer.take(1)
    assert again[0].at == got[0].at
    consumer.done(got[0])
    await asyncio.sleep(0.6)  # two commits' time
    assert await world.behind.committed(0) in (0, None)
    consumer.done(again[0])
    await until(lambda: _is(world, 1))
    await consumer.close()


class Silent:
    """Leases that stop answering."""

    def __init__(self, world: World) -> None:
        self._leases = world.leases
        self.silent = False

    def __getattr__(self, verb: str):  # type: ignore[no-untyped-def]  # any verb of Leases
        if self.silent:
            raise Unavailable("the store of leases is away")
        return getattr(self._leases, verb)


async def test_nothing_is_handed_out_once_leases_could_not_be_renewed_and_it_goes_on_when_they_can(
    world: World,
) -> None:
    world.leases._ttl_s = 1.2
    silent = Silent(world)
    world.leases, leases = silent, world.leases  # type: ignore[assignment]  # stands in for it
    consumer = await world.consumer("a")
    sink = Sink(consumer)
    await send(world, "r0")
    await sink.until(1)
    sink.done()
    silent.silent = True
    await until(lambda: not consumer.owned, within_s=3.0)
    await send(world, "r1")
    await sink.nothing_more(takes=8)
    silent.silent = False
    assert [id_of(one) for one in await sink.until(1)] == ["r1"]
    sink.done()
    world.leases = leases


async def test_a_topic_that_does_not_exist_is_refused_at_once(world: World) -> None:
    async with asyncio.timeout(3):
        with pytest.raises(Missing, match="does not exist"):
            await world.producer.send("nowhere", job("r"), partition=0)
        with pytest.raises(Missing, match="no partition 99"):
            await world.producer.send(world.topic, job("r"), partition=99)
