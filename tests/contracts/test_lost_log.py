"""A broker killed and back without its log, under a reader that had got further than the new log reaches."""

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from cli.local import broker, ports
from cli.local.process import Part, running
from infra.faults import Unavailable
from tests.waiting import until
from topics.kafka_reader import KafkaReader

pytestmark = pytest.mark.services

TOPIC, GROUP = "lost", "readers"


@pytest.fixture
def embedded(tmp_path: Path) -> Part:
    return broker.part(broker.broker_kind("embedded"), ports.free(), tmp_path / "broker.log", tmp_path)


async def fill(bootstrap: str, *values: bytes) -> None:
    """A new topic with these records in its one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for value in values:
        await producer.send_and_wait(TOPIC, value, partition=0)
    await producer.stop()


async def test_what_a_broker_takes_after_it_lost_its_log_is_read(embedded: Part) -> None:
    bootstrap = broker.bootstrap(embedded.port)
    reader = KafkaReader(bootstrap, TOPIC, GROUP)
    got: list[bytes | None] = []

    async def has_read(count: int) -> bool:
        try:
            polled = await reader.poll([0], 0.1)
        except Unavailable:
            return False  # the broker is away
        got.extend(record.value for record in polled.records)
        return len(got) >= count

    try:
        with running(embedded) as child:
            await fill(bootstrap, b"a", b"b", b"c")
            await reader.start()
            await reader.follow({0: None})
            await until(lambda: has_read(3))
            child.kill()
        with running(embedded):
            await fill(bootstrap, b"d")
            await until(lambda: has_read(4), within_s=30)
            await has_read(5)
    finally:
        await reader.close()
    assert got == [b"a", b"b", b"c", b"d"]
