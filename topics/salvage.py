"""Reads a piece of a partition's log as raw bytes, when the client cannot make records of it."""

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition

from topics.batches import split
from topics.records import Record

PIECE_BYTES = 1 << 20
# Not 0: the embedded broker then answers before it has looked.
WAIT_MS = 100
_READ_UNCOMMITTED = 0


async def salvage(bootstrap: str, topic: str, positions: dict[int, int]) -> tuple[list[Record], dict[int, int]]:
    """The records of the next piece of each partition, from its position on, and where reading goes on after it.

    On a connection of its own: this is rare, and the consumer's is busy with its own fetches.

    Raises:
        KafkaError: the broker does not answer.
    """
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        await client.set_topics([topic])
        records: list[Record] = []
        for partition, position in positions.items():
            for batch in split(topic, partition, position, await _piece(client, topic, partition, position)):
                found, position = batch.read()
                records += found
            positions = positions | {partition: position}
        return records, positions
    finally:
        await client.close()


async def _piece(client: AIOKafkaClient, topic: str, partition: int, position: int) -> bytes:
    leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
    wanted = [(topic, [(partition, position, PIECE_BYTES)])]
    answer = await client.send(leader, FetchRequest(WAIT_MS, 1, PIECE_BYTES, _READ_UNCOMMITTED, wanted))
    for _, partitions in answer.topics:
        for _, error_code, _, *rest in partitions:
            if error_code:
                raise for_code(error_code)(f"{topic}/{partition}")
            return rest[-1] or b""
    raise KafkaError(f"no answer about {topic}/{partition}")
