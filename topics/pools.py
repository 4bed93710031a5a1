"""How stateless pools (encoders, decoders) read their topic: an ordinary consumer group, through FastStream.

FastStream owns the subscription and its loop; a batch it hands over is begun and left running, so that work which takes
minutes neither holds up other jobs nor keeps the client from polling. What it can commit by itself is the position read
so far; so we acknowledge: the contiguous finished prefix of each partition, as the LLM pool does.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.kafka.message import KafkaMessage

from infra.clock import Clock
from infra.faults import Unavailable
from infra.tasks import first_failure
from schemas.jobs import Job
from topics import admin
from topics.broker import METADATA_MAX_AGE_MS, detect
from topics.faststream_log import FastStreamLog
from topics.group_consumer import Fetched, GroupConsumer, OnRevoked
from topics.group_jobs import GroupJobs, Work
from topics.opener import Opener

log = logging.getLogger(__name__)

SESSION_MS = 6_000  # Apache Kafka's least: how long a killed member's partitions stand still
HEARTBEAT_MS = 500  # a heartbeat is how a member learns that others come and go
NO_POLL_LIMIT_MS = 2**31 - 1  # a member full of work does not poll; its heartbeats tell that it lives
COMMIT_EVERY_S = 0.1
ANSWER_LIMIT_S = 5.0
START_LIMIT_S = 60.0

J = TypeVar("J", bound=Job)


class Pool(Protocol):
    """A worker's membership in a stateless pool."""

    async def start(self) -> None:
        """Join the pool and begin to work. Call when everything is ready, not before.

        Raises:
            Unavailable: no broker answers in time.
            Missing: the topic does not exist.
        """
        ...

    async def watch(self) -> None:
        """For as long as it reads and commits; raises what has ended that."""
        ...

    async def retire(self) -> None:
        """Leave the pool at once: others read what is unfinished here (after the session time-out, where the broker
        does not let members leave). What is under way goes on."""
        ...

    async def drained(self, within_s: float) -> bool:
        """Wait for what is under way; False when it took longer than this."""
        ...

    async def close(self) -> None:
        """Stop what is under way. Implies `retire`."""
        ...


class GroupPool(Generic[J]):
    """Pool on Kafka's protocol. The group bears the topic's name. `most` jobs are under way at a time."""

    def __init__(self, bootstrap: str, topic: str, opener: Opener[J], work: Work[J], most: int, clock: Clock) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._most = most
        self._clock = clock
        self._jobs = GroupJobs(opener, work, most)
        self._broker: KafkaBroker | None = None
        self._client: GroupConsumer | None = None
        self._committed: dict[int, int] = {}  # in this tenure
        self._committer: asyncio.Task[None] | None = None
        self._retired = False

    @property
    def running(self) -> int:
        """Jobs under way."""
        return self._jobs.running

    async def start(self) -> None:
        found = await detect(self._bootstrap)
        await admin.require(self._bootstrap, self._topic)
        self._broker = broker = KafkaBroker(
            self._bootstrap,
            consumer_only=True,
            allow_auto_create_topics=False,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            apply_types=False,  # it would look into our records and jobs with pydantic
            graceful_timeout=ANSWER_LIMIT_S,
            logger=FastStreamLog(log),
            log_level=logging.DEBUG,
        )
        self._subscribe(broker, found.fetch_wait_ms)
        await broker.connect()
        # As FastStream's own test broker does it: there is no other place to say which client it builds.
        config = broker.config.broker_config
        config.builder = partial(self._build, config.builder, found.lets_members_leave)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await broker.start()
        except (TimeoutError, KafkaError) as error:
            raise Unavailable(f"cannot join the group of {self._topic}: {error!r}") from error
        self._committer = asyncio.create_task(self._commit_on(), name=f"commit {self._topic}")

    async def retire(self) -> None:
        if self._retired:
            return
        self._retired = True
        await self._jobs.stop_beginning()
        if self._committer is not None:
            self._committer.cancel()
            await asyncio.wait([self._committer])
            await self._commit()
        if self._broker is not None:
            try:
                async with asyncio.timeout(2 * ANSWER_LIMIT_S):
                    await self._broker.stop()
            except (TimeoutError, KafkaError) as error:
                log.warning("did not leave the group of %s cleanly: %r", self._topic, error)

    async def watch(self) -> None:
        await first_failure([self._committer] if self._committer is not None else [])

    async def drained(self, within_s: float) -> bool:
        return await self._jobs.drained(within_s)

    async def close(self) -> None:
        await self.retire()
        await self._jobs.close()

    def _subscribe(self, broker: KafkaBroker, fetch_wait_ms: int) -> None:
        subscriber = broker.subscriber(
            self._topic,
            group_id=self._topic,
            batch=True,
            max_records=self._most,
            ack_policy=AckPolicy.MANUAL,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=NO_POLL_LIMIT_MS,
            fetch_max_wait_ms=fetch_wait_ms,
            listener=OnRevoked(self._revoked),
            parser=self._parse,
            decoder=_raw,
            no_reply=True,
        )
        subscriber(self._take)

    def _build(self, builder: Any, leaves: bool, **options: Any) -> GroupConsumer:
        self._client = GroupConsumer(
            tenure=lambda: self._jobs.tenure,
            now_ms=lambda: int(self._clock.now() * 1000),
            leaves=leaves,
            **builder.keywords | options,
        )
        return self._client

    async def _parse(self, batch: tuple[Fetched, ...]) -> KafkaMessage:
        """FastStream's own parser raises on headers that are no UTF-8, and then skips the record for ever."""
        return KafkaMessage(raw_message=batch, body=b"", consumer=self._client)  # type: ignore[arg-type]  # Fetched, not records

    async def _take(self, batch: Sequence[Fetched]) -> None:
        await self._jobs.begin([one.record for one in batch], batch[0].tenure)

    async def _revoked(self) -> None:
        await self._commit()
        await self._jobs.revoked()
        self._committed = {}

    async def _commit_on(self) -> None:
        while True:
            await self._jobs.progress.wait()
            self._jobs.progress.clear()
            await self._commit()
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _commit(self) -> None:
        """What is not committed is read again, and found done: so a failure costs a little work, no more."""
        wanted = {one: at for one, at in self._jobs.committable().items() if self._committed.get(one) != at}
        if not wanted or self._client is None:
            return
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await self._client.commit({TopicPartition(self._topic, one): at for one, at in wanted.items()})
        except (TimeoutError, KafkaError, IllegalStateError) as error:
            log.warning("%s: could not commit %s: %r", self._topic, wanted, error)
            self._jobs.progress.set()
        else:
            self._committed |= wanted


def _raw(message: KafkaMessage) -> object:
    return message.raw_message
