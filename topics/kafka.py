"""The producer on Kafka's protocol."""

import asyncio
import logging

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTopicError, KafkaError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from infra.faults import Missing, Refused, Unavailable
from infra.ports import Blobs
from topics import claim_check
from topics.broker import METADATA_MAX_AGE_MS, Broker, detect
from topics.bus import Position
from topics.headers import Headers

log = logging.getLogger(__name__)

SEND_LIMIT_S = 10.0
CLOSE_LIMIT_S = 5.0
# Too large, or not for us: sent again, it would be refused again.
_NOT_ALLOWED = (MessageSizeTooLargeError, TopicAuthorizationFailedError, InvalidTopicError)


class KafkaProducer:
    """Implements bus.Producer: acknowledged by all replicas, idempotent where the broker has that, no lingering."""

    def __init__(self, bootstrap: str, blobs: Blobs, *, send_limit_s: float = SEND_LIMIT_S) -> None:
        self._bootstrap = bootstrap
        self._blobs = blobs
        self._limit_s = send_limit_s
        self._broker: Broker | None = None
        self._client: AIOKafkaProducer | None = None
        self._broken = False
        self._replacing = asyncio.Lock()

    async def start(self) -> None:
        """Raises Unavailable when no broker answers within 10 s."""
        self._broker = await detect(self._bootstrap)
        if self._broker.idempotent:
            log.info("producer at %s is idempotent", self._bootstrap)
        else:
            log.warning(
                "the broker at %s has no idempotent producer: a retried send may be stored twice", self._bootstrap
            )
        self._client = await self._connect(self._broker)

    async def send(
        self,
        topic: str,
        message: msgspec.Struct,
        *,
        partition: int | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> Position:
        try:
            async with asyncio.timeout(self._limit_s):
                body = await claim_check.pack(message, self._blobs)
                client = await self._healthy()
                await self._require(client, topic, partition)
                sent = await client.send(topic, body, key=key, partition=partition, headers=headers)
                stored = await sent
        except TimeoutError as error:
            raise Unavailable(f"the broker did not take a record for {topic} within {self._limit_s:g} s") from error
        except _NOT_ALLOWED as error:
            raise Refused(f"the broker refuses a record for {topic}: {error!r}") from error
        except KafkaError as error:
            # After an error that no retry can mend (a lost sequence number, say) this client refuses everything.
            self._broken = self._broken or not error.retriable
            raise Unavailable(f"the broker did not take a record for {topic}: {error!r}") from error
        return Position(topic, stored.partition, stored.offset)

    async def close(self) -> None:
        """Send what is under way, for at most 5 s."""
        if self._client is not None:
            client, self._client = self._client, None
            await _stop(client)

    async def _connect(self, broker: Broker) -> AIOKafkaProducer:
        client = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            acks="all",
            enable_idempotence=broker.idempotent,
            linger_ms=0,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            request_timeout_ms=int(self._limit_s * 1000),
        )
        try:
            await client.start()
        except KafkaError as error:
            await _stop(client)
            raise Unavailable(f"cannot produce to {broker.bootstrap}: {error}") from error
        return client

    async def _healthy(self) -> AIOKafkaProducer:
        """The client; a new one if the last error has broken it."""
        async with self._replacing:
            if self._client is None or self._broker is None:
                raise RuntimeError("the producer has not been started, or is closed")
            if self._broken:
                log.warning("replacing a producer that its broker has disowned")
                broken, self._client = self._client, await self._connect(self._broker)
                self._broken = False
                await _stop(broken)
            return self._client

    async def _require(self, client: AIOKafkaProducer, topic: str, partition: int | None) -> None:
        """Refuse at once what does not exist. The client would wait for its whole request time, or create the topic."""
        known = client.client.cluster.partitions_for_topic(topic)
        if known and (partition is None or partition in known):
            return
        fresh = (await client.client.fetch_all_metadata()).partitions_for_topic(topic)
        if not fresh:
            raise Missing(f"topic {topic} does not exist; `triptych topics create` makes it")
        if partition is not None and partition not in fresh:
            raise Missing(f"topic {topic} has no partition {partition}")
        client.client.add_topic(topic)
        await client.client.force_metadata_update()


async def _stop(client: AIOKafkaProducer) -> None:
    try:
        async with asyncio.timeout(CLOSE_LIMIT_S):
            await client.stop()
    except (TimeoutError, KafkaError) as error:
        log.warning("producer did not close cleanly: %r", error)
