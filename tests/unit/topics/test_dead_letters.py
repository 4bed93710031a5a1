"""The brake at work: one wrong setting empties no topic."""

import asyncio
import logging

import pytest

from infra.clock import SystemClock
from infra.memory_blobs import MemoryBlobs
from infra.metrics import Metrics
from tests.waiting import until
from topics.brake import Bound
from topics.bus import Position
from topics.dead_letters import DeadLetters
from topics.memory import MemoryBus, MemoryProducer
from topics.names import DEAD_LETTERS
from topics.records import Record


def record(partition: int, offset: int) -> Record:
    return Record(Position("generate.m", partition, offset), 0, None, b"?")


async def test_a_partition_that_makes_letters_too_fast_waits_says_so_and_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, blobs, metrics = SystemClock(), MemoryBlobs(), Metrics()
    bus = MemoryBus({DEAD_LETTERS: 1})
    producer = MemoryProducer(bus, blobs, clock)
    await producer.start()
    letters = DeadLetters(producer, blobs, metrics, clock, Bound(burst=5, per_s=0.01))
    with caplog.at_level(logging.ERROR):
        sending = [asyncio.create_task(letters.send(record(0, one), "undecodable", "why")) for one in range(8)]
        await until(lambda: len(bus.log(DEAD_LETTERS, 0)) == 5)
        await letters.send(record(1, 0), "undecodable", "why")
    assert len(bus.log(DEAD_LETTERS, 0)) == 6
    assert "triptych_braked_records 3.0" in metrics.render().decode()
    assert "Is a setting wrong" in caplog.text
    for one in sending:
        one.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
    assert "triptych_braked_records 0.0" in metrics.render().decode()


async def test_words_that_cannot_be_encoded_do_not_stop_a_letter() -> None:
    clock, blobs = SystemClock(), MemoryBlobs()
    bus = MemoryBus({DEAD_LETTERS: 1})
    producer = MemoryProducer(bus, blobs, clock)
    await producer.start()
    await DeadLetters(producer, blobs, Metrics(), clock).send(record(0, 0), "failed", "\ud800 is no character")
    assert len(bus.log(DEAD_LETTERS, 0)) == 1
