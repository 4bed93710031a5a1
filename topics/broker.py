"""What the broker at hand can do. Brokers of Kafka's protocol differ, and not all they advertise is so: we try it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiokafka.client
import msgspec
from aiokafka.conn import AIOKafkaConnection, collect_hosts, create_conn
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from infra.faults import Unavailable

log = logging.getLogger(__name__)

# Clients look for new partitions and topics this often; their own default is five minutes.
METADATA_MAX_AGE_MS = 5_000
RETRY_S = 0.25

# A client that asks about a topic lets the broker make it, and aiokafka has no setting against that. When the embedded
# broker has lost its topics, a worker would so make one with fewer partitions than the others send to, for good.
aiokafka.client.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)


class Broker(msgspec.Struct, frozen=True):
    bootstrap: str  # host:port[,host:port]
    idempotent: bool  # whether it hands out producer ids, so that a retried send is stored once

    @property
    def fetch_wait_ms(self) -> int:
        """How long a fetch may wait at the broker for something to come.

        Apache Kafka answers as soon as there is something; 100 ms cost 1 % of a core when idle, and longer would hold
        up a new assignment, which waits for the fetch under way. The embedded broker, the one without producer ids,
        looks again only when the time is over: 20 ms cost 3 % of a core and 5 ms of latency at the median.
        """
        return 100 if self.idempotent else 20

    @property
    def tells_lost_log(self) -> bool:
        """Whether a fetch beyond the end of a log is an error. To the embedded broker it is one that finds nothing."""
        return self.idempotent

    @property
    def lets_members_leave(self) -> bool:
        """Whether members of a group may say that they leave.

        When two did so at the same moment, the embedded broker kept a leader that was gone, and nobody could join that
        group ever again. Members that just fall silent it forgets after their session time-out.
        """
        return self.idempotent


async def detect(bootstrap: str, within_s: float = 10.0) -> Broker:
    """Ask the first server that answers.

    Raises:
        Unavailable: none does within the time.
    """
    last = "no answer"
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    async with connection(bootstrap) as conn:
                        return Broker(bootstrap, await _hands_out_producer_ids(conn))
                except (Unavailable, KafkaError) as error:
                    last = str(error)
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        raise Unavailable(f"no broker at {bootstrap} within {within_s:g} s: {last}") from None


@asynccontextmanager
async def connection(bootstrap: str, answer_within_s: float = 5.0) -> AsyncIterator[AIOKafkaConnection]:
    """A bare connection to any of the servers.

    Raises:
        Unavailable: none of them accepts.
    """
    refused: list[str] = []
    for host, port, _ in collect_hosts(bootstrap):
        try:
            conn = await create_conn(host, port, request_timeout_ms=int(answer_within_s * 1000))
        except (OSError, TimeoutError, KafkaError) as error:
            refused.append(f"{host}:{port}: {error}")
            continue
        try:
            yield conn
        finally:
            conn.close()
        return
    raise Unavailable("; ".join(refused))


async def _hands_out_producer_ids(conn: AIOKafkaConnection) -> bool:
    """Raises KafkaError when it cannot say yet."""
    try:
        answer = await conn.send(InitProducerIdRequest(None, 2**31 - 1))
    except IncompatibleBrokerVersion:
        return False
    error = for_code(answer.error_code)
    if error.retriable:
        raise error()
    return bool(answer.error_code == 0)
