"""The local services really serve, in their own protocols, and end with their owner."""

import asyncio
import uuid

import aioboto3
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from botocore.config import Config
from redis.asyncio import Redis

from cli.local import probes
from tests.services import S3

pytestmark = pytest.mark.services


async def test_valkey_keeps_what_it_is_told(redis_url: str) -> None:
    key = uuid.uuid4().hex
    async with Redis.from_url(redis_url) as client:
        await client.set(key, b"1")
        assert await client.get(key) == b"1"


async def test_the_broker_takes_a_record(kafka: str) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        sent = await asyncio.wait_for(producer.send_and_wait(topic, b"x", partition=1), 30)
    finally:
        await producer.stop()
    assert (sent.partition, sent.offset) == (1, 0)


async def test_the_object_store_asks_for_a_signature_and_keeps_objects(s3: S3) -> None:
    assert probes.http_status(s3.endpoint) in (400, 403)
    config = Config(
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = aioboto3.Session(s3.access_key, s3.secret_key, region_name="us-east-1")
    bucket = uuid.uuid4().hex
    async with session.client("s3", endpoint_url=s3.endpoint, config=config) as client:
        await client.create_bucket(Bucket=bucket)
        await client.put_object(Bucket=bucket, Key="a/b", Body=b"bytes")
        answer = await client.get_object(Bucket=bucket, Key="a/b")
        assert await answer["Body"].read() == b"bytes"
