"""A gateway without HTTP and tokeniser: places by the index, produces, and follows the results, all with real parts."""

import asyncio
import logging
import random
from collections import Counter
from contextlib import AsyncExitStack, closing
from typing import Self

from infra import redis_client
from infra.blobs import S3Blobs
from infra.clock import SystemClock
from infra.faults import Unavailable
from infra.follower import RedisFollower
from infra.leases import RedisLeases
from infra.metrics import Metrics
from infra.ports import PoolView, Subscription
from infra.prefix_index import PrefixIndex
from infra.settings import Settings
from schemas.events import Cancelled, Event, Failed, Finished, Restarted, Token
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.manifest import Manifest
from tests.bench.steering.gateway import Record
from tests.bench.steering.prompts import Prompts
from tests.bench.steering.traffic import Turn
from tests.waiting import until
from topics import names
from topics.kafka import KafkaProducer
from topics.steering import namespaces
from topics.steering.placer import IndexPlacer, living
from topics.steering.policy import Policy
from topics.steering.releases import Releases
from topics.steering.steerer import Steerer

log = logging.getLogger(__name__)

REFRESH_S = 0.25  # as the gateway
DEADLINE_S = 300.0
READY_WITHIN_S = 30.0


class Sent(Record):
    """A request that went through the pipeline; times are monotonic seconds."""

    worker: str = ""  # that finished it
    tokens: int = 0  # received
    restarted_at: float | None = None  # last
    failure: str = ""  # why it did not finish

    @property
    def whole(self) -> bool:
        """It has finished, with every token once."""
        return not self.failure and self.tokens == self.turn.output_tokens


class Producer:
    """Sends the turns of one model under one policy."""

    def __init__(
        self, settings: Settings, manifest: Manifest, policy: Policy, seed: int, streamed: bool = False
    ) -> None:
        self.view = PoolView({}, {})
        self._manifest = manifest
        self._streamed = streamed
        self._me = f"bench-{manifest.id}"
        self._clock = SystemClock()
        self._redis = redis_client.connect(settings.redis)
        self._blobs = S3Blobs(settings)
        self._bus = KafkaProducer(settings.kafka, self._blobs)
        self._follower = RedisFollower(self._redis, self._me, Metrics(), self._clock)
        self._leases = RedisLeases(self._redis, manifest.id)
        self._index = PrefixIndex(self._redis, manifest.id)
        steerer = Steerer(self._index, policy, random.Random(seed))
        space = namespaces.key_space(manifest, "")  # the benchmark's models have no template
        releases = Releases(self._index.release, self._clock)
        self._placer = IndexPlacer(space, manifest.partitions, steerer, releases, Metrics(), self._clock)
        self._prompts = Prompts()
        self._sent: Counter[str] = Counter()
        self._number = 0
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._parts.push_async_callback(self._redis.aclose)
        self._parts.push_async_callback(self._blobs.close)
        await self._blobs.start()
        self._parts.push_async_callback(self._bus.close)
        await self._bus.start()
        self._parts.push_async_callback(self._follower.close)
        await self._follower.start()
        looking = asyncio.create_task(self._look())
        self._parts.push_async_callback(_ended, looking)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    async def workers_are(self, count: int, within_s: float = READY_WITHIN_S) -> None:
        """Wait until so many own partitions and are in the index.

        Raises:
            TimeoutError: they do not within the time.
        """

        async def all_there() -> bool:
            workers = living(self.view)
            return len(workers) == count == len((await self._index.look([], workers)).views)

        await until(all_there, within_s, every_s=0.1)

    async def send(self, turn: Turn, due: float) -> Sent:
        """One request to its end. Its waiting counts from when it was due, so that a late producer shows."""
        self._number += 1
        record = Sent(turn, 0, due)
        now = self._clock.now()
        head = Head(
            f"{self._me}-{self._number}", self._manifest.id, now + DEADLINE_S, now, self._me, streamed=self._streamed
        )
        job = GenerateJob(head, self._prompts.token_ids(turn), Sampling(turn.output_tokens))
        with closing(self._follower.follow(self._manifest.id, head.request_id)) as events:
            placed = await self._placer.place(job, self.view, self._sent, turn.session)
            self._sent[placed.worker] += 1
            record.predicted_tokens, record.kv_usage = placed.predicted_tokens, self._kv_usage()
            try:
                topic, key = names.generate(self._manifest.id), head.request_id.encode()
                await self._bus.send(topic, placed.job, partition=placed.partition, key=key)
                await self._follow(record, events)
            finally:
                self._sent[placed.worker] -= 1
        return record

    async def _follow(self, record: Sent, events: Subscription) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                async for event in events:
                    self._take(record, event, self._clock.monotonic())
        except TimeoutError:
            record.failure = f"no end within {DEADLINE_S:.0f} s"

    def _take(self, record: Sent, event: Event, at: float) -> None:
        match event:
            case Token():
                record.first_at = record.first_at or at
                record.tokens += len(event.token_ids)
            case Restarted():  # what was received so far is void: the wait goes on
                record.first_at, record.tokens = 0.0, 0
                record.restarted_at = at
            case Finished():
                record.ended_at, record.cached_tokens = at, event.usage.cached
                record.worker = event.worker
                self._placer.answered(event.usage.completion)
            case Failed():
                record.failure = f"{event.code}: {event.message}"
            case Cancelled():
                record.failure = f"cancelled: {event.reason}"

    def _kv_usage(self) -> float:
        beats = self.view.beats.values()
        return sum(beat.kv_usage for beat in beats) / len(beats) if beats else 0.0

    async def _look(self) -> None:
        while True:
            try:
                self.view = await self._leases.view(self._manifest.partitions)
            except Unavailable as error:
                log.warning("cannot see the workers: %s", error)
            await asyncio.sleep(REFRESH_S)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
