"""One partition-owning consumer as a process of its own: tells what it owns and takes, and finishes all at once.

`python -m tests.chaos.member BOOTSTRAP REDIS_URL MODEL WORKER`; SIGTERM makes it leave cleanly. It prints
`own SECONDS 0,1,2` and `got SECONDS REQUEST_ID`, on the monotonic clock, which is one for all processes of a machine.
"""

import asyncio
import logging
import sys

from infra import redis_client
from infra.clock import SystemClock
from infra.leases import RedisLeases
from infra.lifecycle import Life, signals
from infra.memory_blobs import MemoryBlobs
from infra.metrics import Metrics
from schemas.jobs import GenerateJob
from schemas.signals import Beat
from topics import names
from topics.checks import Belongs
from topics.dead_letters import DeadLetters
from topics.kafka import KafkaProducer
from topics.kafka_reader import KafkaReader
from topics.opener import Opener
from topics.partitions import LeasedConsumer


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def consume(consumer: LeasedConsumer, life: Life, clock: SystemClock) -> None:
    owned: frozenset[int] = frozenset()
    while not life.stopping:
        deliveries = await consumer.take(64)
        if consumer.owned != owned:
            owned = consumer.owned
            say(f"own {clock.monotonic():.4f} {','.join(map(str, sorted(owned)))}")
        for one in deliveries:
            say(f"got {clock.monotonic():.4f} {one.job.head.request_id}")
            consumer.done(one)


async def main(bootstrap: str, redis_url: str, model: str, worker: str) -> None:
    clock, blobs, life = SystemClock(), MemoryBlobs(), Life(10)
    redis = redis_client.connect(redis_url)
    letters = DeadLetters(KafkaProducer(bootstrap, blobs), blobs, Metrics(), clock)
    reader = KafkaReader(bootstrap, names.generate(model), names.group(model), clock)
    consumer = LeasedConsumer(
        worker,
        reader,
        RedisLeases(redis, model),
        Opener(Belongs(GenerateJob, ("m", model)), blobs, letters, clock),
        lambda: Beat("", 0, 0.0),
        clock,
    )
    async with signals(life):
        await consumer.start()
        await consume(consumer, life, clock)
        await consumer.retire()
        await consumer.close()
    await redis.aclose()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", stream=sys.stderr)
    logging.getLogger("aiokafka").setLevel("ERROR")
    asyncio.run(main(*sys.argv[1:]))
