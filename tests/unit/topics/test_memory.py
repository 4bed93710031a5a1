"""What the twin refuses that a broker would let pass."""

import asyncio

import pytest

from infra.clock import SystemClock
from infra.memory_blobs import MemoryBlobs
from tests.contracts.bus_worlds import MemoryWorld, job, memory_world
from topics.bus import Delivery
from topics.memory import MemoryProducer, MemoryReader, StrictConsumer


async def taken(world: MemoryWorld) -> tuple[StrictConsumer, Delivery]:
    await world.producer.send(world.topic, job("r"), partition=0)
    consumer = StrictConsumer(world.unstarted("a"))
    await consumer.start()
    async with asyncio.timeout(5):
        while not (got := await consumer.take(1)):
            continue
    return consumer, got[0]


async def test_a_delivery_that_is_never_done_fails_the_test() -> None:
    async with memory_world() as world:
        consumer, _ = await taken(world)
        with pytest.raises(AssertionError, match=r"never done: generate\.m/0@0"):
            await consumer.close()


async def test_a_worker_that_retires_may_leave_jobs_to_the_next_owner() -> None:
    async with memory_world() as world:
        consumer, _ = await taken(world)
        await consumer.retire()
        with pytest.raises(AssertionError, match="take after retire"):
            await consumer.take(1)
        await consumer.close()


async def test_a_delivery_that_is_done_twice_fails_the_test() -> None:
    async with memory_world() as world:
        consumer, delivery = await taken(world)
        consumer.done(delivery)
        with pytest.raises(AssertionError, match="not open"):
            consumer.done(delivery)
        await consumer.close()


async def test_a_producer_that_has_not_been_started_cannot_send() -> None:
    async with memory_world() as world:
        with pytest.raises(RuntimeError):
            await MemoryProducer(world.bus, MemoryBlobs(), SystemClock()).send(world.topic, job("r"))


async def test_a_commit_to_what_is_not_read_fails_the_test() -> None:
    async with memory_world() as world:
        with pytest.raises(AssertionError, match="not followed"):
            await MemoryReader(world.bus, world.topic, world.group).commit({0: 1})


async def test_messages_without_a_partition_take_turns() -> None:
    async with memory_world() as world:
        sent = [await world.producer.send(world.topic, job("r")) for _ in range(8)]
        assert [one.partition for one in sent] == [0, 1, 2, 3, 0, 1, 2, 3]
