"""Topics as operators deal with them: create, grow, list with lag. Nothing here ever shrinks or deletes anything."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    KafkaError,
    TopicAlreadyExistsError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from infra.faults import Missing, Unavailable
from infra.settings import Settings
from schemas.manifest import Manifest
from topics import names
from topics.broker import METADATA_MAX_AGE_MS, connection
from topics.kafka_faults import fault_of

log = logging.getLogger(__name__)

ADMIN_LIMIT_S = 20.0
CLOSE_LIMIT_S = 5.0
_RETRIES, _RETRY_S = 50, 0.1
_SET_ON_TOPIC = 1  # DescribeConfigs' source "dynamic topic config": an override, not a default


class TopicState(msgspec.Struct, frozen=True):
    name: str
    partitions: int  # 0: does not exist
    messages: int  # still kept, over all partitions
    lag: dict[str, int]  # per consumer group: messages not committed yet


async def create(settings: Settings, manifests: Sequence[Manifest]) -> list[str]:
    """Make the topics of names.py exist as the table says; returns a line for each thing that was done.

    Harmless when repeated, also at the same time elsewhere. Adds partitions where the table has more.

    Raises:
        Unavailable: the broker does not answer or does not do it in time. Refused: it does not let us.
    """
    wanted = {one.name: one for one in names.topics_for(list(manifests))}
    async with _admin(settings.kafka) as client:
        existing = await _partitions(client)
        missing = [one for one in wanted.values() if one.name not in existing]
        done = await _create_missing(client, missing, settings.partition_replicas)
        for topic in wanted.values():
            if topic.name in existing:
                done += await _grow(client, topic, existing[topic.name])
                done += await _configure(client, topic)
    for line in done:
        log.info("%s", line)
    return done


async def list_topics(settings: Settings, manifests: Sequence[Manifest]) -> list[TopicState]:
    """Each topic of the table, with the lag of the group that reads it.

    Raises:
        Unavailable: the broker does not answer in time. Refused: it does not let us.
    """
    wanted = names.topics_for(list(manifests))
    groups = names.groups_for(list(manifests))
    async with _admin(settings.kafka) as client, _consumer(settings.kafka) as consumer:
        counts = await _partitions(client)
        return [
            await _state(client, consumer, one.name, counts.get(one.name, 0), groups.get(one.name)) for one in wanted
        ]


async def require(bootstrap: str, topic: str) -> None:
    """Raises Missing unless the topic exists, Unavailable when the broker does not answer, Refused when it will not."""
    async with _admin(bootstrap) as client:
        if not (await _partitions(client)).get(topic):
            raise Missing(f"topic {topic} does not exist; `triptych topics create` makes it")


async def ping(bootstrap: str, within_s: float = 2.0) -> None:
    """Raises Unavailable unless a broker answers a question about itself within the time."""
    try:
        async with asyncio.timeout(within_s), connection(bootstrap, within_s) as conn:
            answer = await conn.send(MetadataRequest([]))
    except (TimeoutError, KafkaError) as error:
        raise Unavailable(f"no answer from {bootstrap} within {within_s:g} s") from error
    if not answer.brokers:
        raise Unavailable(f"{bootstrap} knows no broker")


async def _partitions(client: AIOKafkaAdminClient) -> dict[str, int]:
    return {one["topic"]: len(one["partitions"]) for one in await client.describe_topics() if not one["error_code"]}


async def _create_missing(client: AIOKafkaAdminClient, topics: Sequence[names.Topic], replicas: int) -> list[str]:
    new = [NewTopic(one.name, one.partitions, replicas, topic_configs=_configs(one)) for one in topics]
    if not new:
        return []
    answer = await client.create_topics(new)
    done: list[str] = []
    for name, code, *message in answer.topic_errors:
        error = for_code(code)
        if code == 0:
            done.append(f"created {name}")
        elif error is not TopicAlreadyExistsError:  # somebody else was quicker
            raise error(f"{name}: {message}")
    for topic in topics:
        await _known(client, topic)
    return done


async def _known(client: AIOKafkaAdminClient, topic: names.Topic) -> None:
    """The controller answers before every broker knows of it."""
    for _ in range(_RETRIES):
        if (await _partitions(client)).get(topic.name, 0) >= topic.partitions:
            return
        await asyncio.sleep(_RETRY_S)
    raise Unavailable(f"{topic.name} has been made, but its brokers do not know of it")


async def _grow(client: AIOKafkaAdminClient, topic: names.Topic, count: int) -> list[str]:
    if count > topic.partitions:
        log.warning("%s has %d partitions, the table %d: a topic cannot shrink", topic.name, count, topic.partitions)
    if count >= topic.partitions:
        return []
    try:
        await client.create_partitions({topic.name: NewPartitions(topic.partitions)})
    except IncompatibleBrokerVersion:
        log.warning("this broker cannot add partitions: %s stays at %d", topic.name, count)
        return []
    await _known(client, topic)
    return [f"grew {topic.name} from {count} to {topic.partitions} partitions"]


async def _configure(client: AIOKafkaAdminClient, topic: names.Topic) -> list[str]:
    """Set what differs. The request replaces all overrides of a topic, so those that are not ours go along."""
    try:
        ours, overrides = _configs(topic), await _overrides(client, topic.name)
        if ours.items() <= overrides.items():
            return []
        await _alter(client, topic.name, overrides | ours)
    except IncompatibleBrokerVersion:
        log.info("this broker cannot change topics: %s keeps its settings", topic.name)
        return []
    return [f"configured {topic.name}"]


async def _overrides(client: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    answers = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {
        name: value
        for answer in answers
        for _, _, _, _, entries in answer.resources
        for name, value, _, source, *_ in entries
        if source == _SET_ON_TOPIC
    }


async def _alter(client: AIOKafkaAdminClient, topic: str, configs: dict[str, str]) -> None:
    for answer in await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)]):
        for code, message, *_ in answer.resources:
            if code:
                raise for_code(code)(f"{topic}: {message}")


def _configs(topic: names.Topic) -> dict[str, str]:
    return {"retention.ms": str(topic.retention_ms), "cleanup.policy": topic.cleanup}


async def _state(
    client: AIOKafkaAdminClient, consumer: AIOKafkaConsumer, topic: str, partitions: int, group: str | None
) -> TopicState:
    tps = [TopicPartition(topic, one) for one in range(partitions)]
    first: dict[TopicPartition, int] = await consumer.beginning_offsets(tps)
    last: dict[TopicPartition, int] = await consumer.end_offsets(tps)
    lag: dict[str, int] = {}
    if group is not None and tps:
        read = await _commits(client, group, tps)
        lag[group] = sum(last[tp] - min(last[tp], max(read.get(tp, 0), first[tp])) for tp in tps)
    return TopicState(topic, partitions, sum(last[tp] - first[tp] for tp in tps), lag)


async def _commits(client: AIOKafkaAdminClient, group: str, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
    for _ in range(_RETRIES):
        try:
            found = await client.list_consumer_group_offsets(group, partitions=tps)
        except GroupCoordinatorNotAvailableError:  # a new cluster makes its offsets topic when first asked
            await asyncio.sleep(_RETRY_S)
        else:
            return {tp: one.offset for tp, one in found.items()}
    raise Unavailable(f"no coordinator for group {group}")


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Inside, no answer in time becomes Unavailable, and errors of the broker what they are: see kafka_faults.py."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=int(ADMIN_LIMIT_S * 1000))
    async with _opened(client, client.close, bootstrap):
        yield client


@asynccontextmanager
async def _consumer(bootstrap: str) -> AsyncIterator[AIOKafkaConsumer]:
    client = AIOKafkaConsumer(bootstrap_servers=bootstrap, metadata_max_age_ms=METADATA_MAX_AGE_MS)
    async with _opened(client, client.stop, bootstrap):
        yield client


@asynccontextmanager
async def _opened(client: Any, close: Any, bootstrap: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ADMIN_LIMIT_S):
            await client.start()
            yield
    except TimeoutError as error:
        raise Unavailable(f"no answer from {bootstrap} within {ADMIN_LIMIT_S:g} s") from error
    except KafkaError as error:
        raise fault_of(error, bootstrap) from error
    finally:
        await _closed(close)


async def _closed(close: Any) -> None:
    """All has been asked by then; how it ends must not hide what came of it."""
    try:
        async with asyncio.timeout(CLOSE_LIMIT_S):
            await close()
    except (TimeoutError, KafkaError) as error:
        log.warning("a connection to the broker did not close cleanly: %r", error)
