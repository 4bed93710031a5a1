"""Record batches as other clients may produce them, byte by byte: our own producer cannot make the odd ones."""

import asyncio
from collections.abc import Sequence

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NoError, NotLeaderForPartitionError, for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.structs import TopicPartition

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

Headers = Sequence[tuple[bytes, bytes | None]]
Row = tuple[bytes | None, bytes | None, Headers]  # key, value, headers with names as bytes


class _Name(str):
    """A header name whose bytes are no UTF-8."""

    raw: bytes

    def encode(self, *_: object) -> bytes:
        return self.raw


def _name(raw: bytes) -> _Name:
    name = _Name("x")
    name.raw = raw
    return name


def batch(rows: Sequence[Row], codec: str = "none", timestamp_ms: int = 1_000) -> bytes:
    builder = _DefaultRecordBatchBuilderPy(2, CODECS[codec], 0, -1, -1, -1, 1 << 24)
    for offset, (key, value, headers) in enumerate(rows):
        builder.append(offset, timestamp_ms, key, value, [(_name(name), content) for name, content in headers])
    return bytes(builder.build())


async def produce(bootstrap: str, topic: str, partition: int, raw: bytes) -> None:
    """Have the broker store these bytes as one batch."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        await client.set_topics([topic])
        leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
        for _ in range(100):
            answer = await client.send(leader, ProduceRequest(None, -1, 5_000, [(topic, [(partition, raw)])]))
            error = for_code(answer.topics[0][1][0][1])
            if error is not NotLeaderForPartitionError:  # for a moment after its creation
                break
            await asyncio.sleep(0.02)
        if error is not NoError:
            raise error(f"{topic}/{partition}")
    finally:
        await client.close()
