"""What only a broker has: its wire format, its transactions, its administration, its being away."""

import asyncio
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from infra.faults import Missing, Unavailable
from infra.memory_blobs import MemoryBlobs
from infra.settings import Settings
from schemas.codec import encode
from schemas.jobs import DeadLetter
from tests import raw_batches
from tests.contracts.bus_worlds import PARTITIONS, KafkaWorld, Sink, id_of, job, kafka_world
from tests.waiting import until
from topics import admin, kafka_reader, names
from topics.broker import detect
from topics.kafka import KafkaProducer
from topics.kafka_reader import KafkaReader
from topics.records import Record
from topics.salvage import salvage

pytestmark = pytest.mark.services


@pytest.fixture
async def world(kafka: str) -> AsyncIterator[KafkaWorld]:
    async with kafka_world(kafka) as world:
        yield world


def row(one: str, *headers: tuple[bytes, bytes | None]) -> raw_batches.Row:
    return (one.encode(), encode(job(one)), headers)


async def ids(sink: Sink, count: int) -> list[str]:
    return [id_of(one) for one in await sink.until(count)]


async def is_committed(world: KafkaWorld, partition: int, offset: int) -> bool:
    return await world.behind.committed(partition) == offset


@pytest.mark.parametrize("codec", raw_batches.CODECS)
async def test_batches_of_every_compression_are_read(world: KafkaWorld, codec: str) -> None:
    await world.behind.raw(0, [row(f"r{number}") for number in range(20)], codec)
    sink = Sink(await world.consumer())
    assert await ids(sink, 20) == [f"r{number}" for number in range(20)]
    sink.done()


@pytest.mark.parametrize("codec", raw_batches.CODECS)
async def test_a_header_name_that_is_no_utf8_costs_only_its_own_record(world: KafkaWorld, codec: str) -> None:
    """The client raises below every handler, loses what it had drained of other partitions, and reads it again."""
    for partition in range(1, PARTITIONS):
        await world.behind.raw(partition, [row(f"p{partition}-{number}") for number in range(3)], codec)
    bad = row("bad", (b"fine", b"1"), (b"\xff\xfe", b"2"))
    await world.behind.raw(0, [row("b0"), row("b1"), bad, row("b3"), row("b4")], codec)
    await world.behind.raw(0, [row("next batch")], codec)
    sink = Sink(await world.consumer())
    got = await ids(sink, 14)
    assert [one for one in got if not one.startswith("p")] == ["b0", "b1", "b3", "b4", "next batch"]
    for partition in range(1, PARTITIONS):
        of_partition = [f"p{partition}-{number}" for number in range(3)]
        assert [one for one in got if one.startswith(f"p{partition}")] == of_partition
    await sink.nothing_more()
    (letter,) = await world.letters(1)
    assert (letter.reason, letter.partition, letter.offset, letter.key) == ("unreadable", 0, 2, b"bad")
    assert letter.value == bad[1] and letter.headers == [("fine", b"1"), ("\\xff\\xfe", b"2")]
    assert "not UTF-8" in letter.detail
    sink.done()
    await until(lambda: is_committed(world, 0, 6))


async def test_bad_header_names_in_all_partitions_at_once_are_got_past(world: KafkaWorld) -> None:
    for partition in range(PARTITIONS):
        for number in range(3):
            await world.behind.raw(partition, [row("bad", (b"\xff", b""))])
            await world.behind.raw(partition, [row(f"p{partition}-{number}")])
    sink = Sink(await world.consumer())
    assert len(await ids(sink, PARTITIONS * 3)) == PARTITIONS * 3
    await sink.nothing_more()
    assert len(await world.letters(PARTITIONS * 3)) == PARTITIONS * 3
    sink.done()
    for partition in range(PARTITIONS):
        await until(lambda partition=partition: is_committed(world, partition, 6))


async def test_a_bad_record_that_comes_while_others_are_under_way_does_not_repeat_them(world: KafkaWorld) -> None:
    sink = Sink(await world.consumer())
    for number in range(10):
        await world.behind.raw(0, [row(f"a{number}"), row("bad", (b"\xff", b""))])
        await world.producer.send(world.topic, job(f"b{number}"), partition=1)
        await sink.until(2 * number + 2)
    assert sorted(id_of(one) for one in sink.got) == sorted([f"{x}{n}" for x in "ab" for n in range(10)])
    sink.done()


async def test_nothing_is_lost_when_the_broker_fails_in_the_middle_of_a_salvage(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile must not be taken for what comes next: the client has drained what lies before it."""
    failures = [KafkaError("gone"), KafkaError("still gone")]

    async def unlucky(bootstrap: str, topic: str, positions: dict[int, int]) -> tuple[list[Record], dict[int, int]]:
        if not failures:
            return await salvage(bootstrap, topic, positions)
        for partition in (0, 1, 3):
            await world.behind.raw(partition, [row(f"p{partition} again")])
        raise failures.pop()

    monkeypatch.setattr(kafka_reader, "salvage", unlucky)
    for partition in range(PARTITIONS):
        await world.behind.raw(partition, [row(f"p{partition}"), *[row("bad", (b"\xff", b""))] * (partition == 2)])
    sink = Sink(await world.consumer())
    got = await ids(sink, PARTITIONS + 6)
    assert {f"p{partition}" for partition in range(PARTITIONS)} <= set(got)
    await sink.nothing_more()
    assert not failures
    sink.done()


async def test_a_commit_beyond_the_log_of_a_broker_that_lost_it_begins_at_the_start(world: KafkaWorld) -> None:
    await world.producer.send(world.topic, job("r0"), partition=0)
    tp = TopicPartition(world.topic, 0)
    client = AIOKafkaConsumer(bootstrap_servers=world.bootstrap, group_id=world.group, enable_auto_commit=False)
    await client.start()
    client.assign([tp])
    await client.commit({tp: 1_000})
    await client.stop()
    sink = Sink(await world.consumer())
    assert await ids(sink, 1) == ["r0"]
    sink.done()
    await until(lambda: is_committed(world, 0, 1))


async def test_a_transaction_marker_at_the_end_leaves_no_lag(world: KafkaWorld) -> None:
    if not (await detect(world.bootstrap)).idempotent:
        pytest.skip("this broker has no transactions")
    client = AIOKafkaProducer(bootstrap_servers=world.bootstrap, transactional_id=world.model)
    await client.start()
    async with client.transaction():
        await client.send_and_wait(world.topic, encode(job("r0")), partition=0)
    await client.stop()
    sink = Sink(await world.consumer())
    assert await ids(sink, 1) == ["r0"]
    await sink.nothing_more()
    assert not await is_committed(world, 0, 2)  # the job is still open
    sink.done()
    await sink.nothing_more()
    await until(lambda: is_committed(world, 0, 2))


async def test_lag_is_what_has_not_been_finished(world: KafkaWorld) -> None:
    for number in range(6):
        await world.producer.send(world.topic, job(f"r{number}"), partition=number % 2)
    settings, manifests = Settings(kafka=world.bootstrap), [world.manifest()]
    before = (await admin.list_topics(settings, manifests))[0]
    assert (before.name, before.partitions, before.messages) == (world.topic, PARTITIONS, 6)
    assert before.lag == {world.group: 6}
    sink = Sink(await world.consumer())
    first, *_ = await sink.until(6)
    sink.consumer.done(first)
    sink.got.remove(first)

    async def lag() -> int:
        return (await admin.list_topics(settings, manifests))[0].lag[world.group]

    async def is_five() -> bool:
        return await lag() == 5

    await until(is_five)
    sink.done()


async def test_creating_topics_again_does_nothing_and_more_partitions_are_added_never_taken(
    world: KafkaWorld,
) -> None:
    settings = Settings(kafka=world.bootstrap)
    assert await admin.create(settings, [world.manifest()]) == []
    grows = (await detect(world.bootstrap)).idempotent  # the embedded broker cannot
    for wanted, is_there in ((PARTITIONS + 2, PARTITIONS + 2 * grows), (1, PARTITIONS + 2 * grows)):
        await admin.create(settings, [world.manifest(wanted)])
        assert (await admin.list_topics(settings, [world.manifest()]))[0].partitions == is_there


async def test_settings_of_a_topic_that_are_not_ours_survive_ours(world: KafkaWorld) -> None:
    if not (await detect(world.bootstrap)).idempotent:
        pytest.skip("this broker cannot change topics")
    client = AIOKafkaAdminClient(bootstrap_servers=world.bootstrap)
    await client.start()
    theirs = {"max.message.bytes": "2000000", "retention.ms": "1000", "cleanup.policy": "delete"}
    await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, world.topic, theirs)])
    done = await admin.create(Settings(kafka=world.bootstrap), [world.manifest()])
    assert done == [f"configured {world.topic}"]

    async def both_are_set() -> bool:
        now = await admin._overrides(client, world.topic)
        return now["max.message.bytes"] == "2000000" and now["retention.ms"] == str(names.DAY_MS)

    await until(both_are_set)
    await client.close()


async def test_a_consumer_takes_up_partitions_that_are_added(world: KafkaWorld) -> None:
    if not (await detect(world.bootstrap)).idempotent:
        pytest.skip("this broker cannot add partitions")
    consumer = await world.consumer()
    await until(lambda: len(consumer.owned) == PARTITIONS)
    await admin.create(Settings(kafka=world.bootstrap), [world.manifest(PARTITIONS + 2)])
    await until(lambda: len(consumer.owned) == PARTITIONS + 2, within_s=15)
    await world.producer.send(world.topic, job("new"), partition=PARTITIONS + 1)
    sink = Sink(consumer)
    assert await ids(sink, 1) == ["new"]
    sink.done()


async def test_a_consumer_of_a_topic_that_does_not_exist_says_so_at_once(world: KafkaWorld) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(Missing, match=r"triptych topics create"):
            await KafkaReader(world.bootstrap, "generate.nowhere", "llm.nowhere").start()
    assert "generate.nowhere" not in await _topics(world.bootstrap)


async def _topics(bootstrap: str) -> set[str]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    found = set(await client.list_topics())
    await client.close()
    return found


async def test_a_client_does_not_make_the_topic_that_it_misses(world: KafkaWorld, kafka: str) -> None:
    """A broker that has lost its topics gets them from who knows how many partitions they have."""
    lost = f"{world.model}.lost"
    client = AIOKafkaConsumer(bootstrap_servers=kafka)
    await client.start()
    try:
        client.assign([TopicPartition(lost, 7)])
        await client._client.force_metadata_update()
    finally:
        await client.stop()
    with pytest.raises(Missing):
        await admin.require(kafka, lost)


async def test_a_letter_whose_headers_alone_are_too_big_says_that_they_are_left_out(world: KafkaWorld) -> None:
    await world.behind.raw(0, [(b"k", b"\xc1", [(b"h", b"x" * names.MAX_MESSAGE_BYTES)])])
    await Sink(await world.consumer()).nothing_more(takes=5)
    await until(lambda: is_committed(world, 0, 1))
    (letter,) = await world.letters(1)
    assert letter.headers == [] and "left out" in letter.detail
    assert letter.value_ref is not None and await world.blobs.get(letter.value_ref) == b"\xc1"


async def test_a_message_just_at_the_limit_is_sent_as_it_is(world: KafkaWorld) -> None:
    letter = DeadLetter("r", "d", world.topic, 0, 0, 0.0, value=b"")
    room = names.MAX_MESSAGE_BYTES - len(encode(letter)) - 3  # a length of two bytes more, and its type
    full = msgspec.structs.replace(letter, value=b"x" * room)
    assert len(encode(full)) <= names.MAX_MESSAGE_BYTES
    await world.producer.send(names.DEAD_LETTERS, full, headers=[("h", b"x" * 1_000)])
    assert full in await world.behind.letters()


async def test_pings_answer_within_their_time(kafka: str, unused_tcp_port: int) -> None:
    await admin.ping(kafka)
    async with asyncio.timeout(3):
        with pytest.raises(Unavailable):
            await admin.ping(f"127.0.0.1:{unused_tcp_port}", within_s=1.0)


async def test_a_ping_to_something_that_never_answers_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel accepts, nobody answers
        port = server.getsockname()[1]
        async with asyncio.timeout(3):
            with pytest.raises(Unavailable):
                await admin.ping(f"127.0.0.1:{port}", within_s=0.5)


async def test_a_producer_whose_broker_is_not_there_says_so(unused_tcp_port: int) -> None:
    with pytest.raises(Unavailable):
        await detect(f"127.0.0.1:{unused_tcp_port}", within_s=0.6)
    with pytest.raises(RuntimeError, match="not been started"):
        await KafkaProducer(f"127.0.0.1:{unused_tcp_port}", MemoryBlobs()).send("t", job("r"))
