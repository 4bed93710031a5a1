"""One LLM worker process: builds every part, starts them in order, and takes them down in the reverse one."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from infra import redis_client
from infra.artifact_notes import RedisArtifactNotes
from infra.blobs import S3Blobs
from infra.clock import SystemClock
from infra.health_server import HealthServer
from infra.leases import RedisLeases
from infra.lifecycle import Life, signals
from infra.manifests import find
from infra.metrics import Metrics
from infra.prefix_index import PrefixIndex
from infra.results import RedisResults
from infra.settings import Settings
from infra.signals import RedisSignals
from schemas.jobs import GenerateJob
from schemas.signals import Beat
from topics import names
from topics.brake import Bound
from topics.bus import FencedOff, PartitionConsumer
from topics.checks import Belongs
from topics.dead_letters import DeadLetters
from topics.kafka import KafkaProducer
from topics.kafka_reader import KafkaReader
from topics.opener import Opener
from topics.partitions import LeasedConsumer
from topics.steering import dispatch, namespaces
from topics.steering.dispatch import Dispatcher
from topics.steering.policy import parse_policy
from workers.artifact_cache import ArtifactCache
from workers.assembly import Assembly
from workers.attempt import Attempts
from workers.engine_keeper import EngineKeeper
from workers.engines import catalog
from workers.handoff import HandOff
from workers.job_queue import JobQueue
from workers.loop import Loop
from workers.options import WorkerOptions
from workers.outbox import Outbox
from workers.presence import Presence

log = logging.getLogger(__name__)

EXIT_OK, EXIT_FENCED = 0, 3


class LlmProcess:
    """The parts of one worker. `run` is its whole life."""

    def __init__(self, settings: Settings, options: WorkerOptions) -> None:
        self._settings = settings
        self._manifest = find(settings, options.model)
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._space = namespaces.of_model(self._manifest, Path(settings.model_dir))
        self._engine = catalog.build(options, self._manifest, Path(settings.model_dir))
        self._slots = options.slots
        self._redis = redis_client.connect(settings.redis)
        self._results = RedisResults(self._redis, self._metrics)
        self._blobs = S3Blobs(settings)
        self._producer = KafkaProducer(settings.kafka, self._blobs)
        self._outbox = Outbox(self._results)
        self._keeper = EngineKeeper(self._engine, self._metrics, self._manifest.id)
        self._queue = JobQueue()
        self._index = PrefixIndex(self._redis, self._manifest.id)
        self._leases = RedisLeases(self._redis, self._manifest.id, clock=self._clock)
        self._phase = "starting"

    async def run(self, life: Life) -> int:
        """Returns the exit code."""
        async with AsyncExitStack() as parts:
            health = HealthServer(self._settings.host, self._settings.metrics_port, self._metrics, self._unready)
            parts.push_async_callback(health.close)
            await health.start()
            parts.push_async_callback(self._redis.aclose)
            parts.push_async_callback(self._blobs.close)
            await self._blobs.start()
            parts.push_async_callback(self._producer.close)
            await self._producer.start()
            parts.push_async_callback(self._engine.close)
            await self._engine.start(self._report)
            consumer = self._consumer()
            parts.push_async_callback(consumer.close)
            await consumer.start()
            presence = Presence(
                self._index, self._space, consumer.me, self._engine, self._queue, self._metrics, self._clock
            )
            parts.push_async_callback(presence.close)
            self._phase = ""
            log.info("%s serves %s as %s", self._engine.name, self._manifest.id, consumer.me)
            return await self._serve(consumer, presence, life)

    async def _serve(self, consumer: PartitionConsumer, presence: Presence, life: Life) -> int:
        attempts = Attempts(
            consumer.me,
            self._results,
            self._assembly(),
            self._engine,
            self._keeper,
            self._outbox,
            self._producer,
            presence.reservations,
            self._metrics,
            self._clock,
            self._settings.max_attempts,
        )
        slots = self._slots or self._engine.slots
        listener = RedisSignals(self._redis)
        loop = Loop(self._manifest.id, slots, consumer, listener, attempts, self._keeper, self._outbox, self._queue)
        exit_code = EXIT_OK
        try:
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(presence.run())]
                if self._settings.handoff_after_s:
                    policy = parse_policy(self._settings.steering)
                    dispatcher = dispatch.by_index(
                        self._manifest, self._space, self._index, policy, self._producer, self._metrics, self._clock
                    )
                    beside.append(group.create_task(dispatcher.run()))
                    beside.append(group.create_task(self._handoff(consumer, dispatcher).run()))
                await loop.run(life)
                for task in beside:
                    task.cancel()
        except* FencedOff:
            log.error("this process stops: a later life of %s has begun", consumer.me.worker)
            exit_code = EXIT_FENCED
        return exit_code

    def _consumer(self) -> LeasedConsumer:
        model = self._manifest.id
        letters = DeadLetters(self._producer, self._blobs, self._metrics, self._clock, Bound.of(self._settings))
        return LeasedConsumer(
            self._settings.worker_name,
            KafkaReader(self._settings.kafka, names.generate(model), names.group(model), self._clock),
            self._leases,
            Opener(Belongs(GenerateJob, (model,)), self._blobs, letters, self._clock),
            self._beat,
            self._clock,
        )

    def _assembly(self) -> Assembly:
        most_bytes = self._settings.artifact_cache_bytes
        cache = ArtifactCache(self._blobs, most_bytes, self._manifest.id, self._metrics, self._clock)
        return Assembly(self._engine, cache, RedisArtifactNotes(self._redis))

    def _handoff(self, consumer: PartitionConsumer, dispatcher: Dispatcher) -> HandOff:
        return HandOff(
            consumer.me,
            self._manifest,
            self._queue,
            consumer,
            dispatcher,
            self._leases,
            self._index,
            self._metrics,
            self._clock,
            self._settings.handoff_after_s,
        )

    def _beat(self) -> Beat:
        load = self._engine.load()
        return Beat(
            worker=self._settings.worker_name,
            epoch=0,  # the consumer, which knows it, fills in the epoch and the time
            at=0.0,
            running=load.running,
            waiting=load.waiting + len(self._queue),
            slots=self._slots or self._engine.slots,
            kv_usage=load.kv_usage,
            tokens_per_s=load.tokens_per_s,
            engine=self._engine.name,
        )

    def _report(self, phase: str) -> None:
        self._phase = phase
        log.info("%s", phase)

    def _unready(self) -> list[str]:
        return [f"engine: {self._phase}"] if self._phase else []


async def serve(settings: Settings, options: WorkerOptions) -> int:
    """Run one LLM worker until it is told to stop; returns the exit code.

    Raises:
        WrongManifest: no manifest describes the model.
        Unavailable: broker, Redis or object store cannot be reached at start.
    """
    life = Life(settings.drain_s)
    process = LlmProcess(settings, options)
    async with signals(life):
        return await process.run(life)
