"""An encoder process: pictures and frames, or sound, for all served models that have an encoder of that pool."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from infra import manifests
from infra.artifact_notes import RedisArtifactNotes
from infra.leases import RedisLeases
from infra.prefix_index import PrefixIndex
from infra.settings import Settings
from schemas.jobs import EncodeJob
from schemas.manifest import Manifest
from topics import names
from topics.artifacts import Artifacts
from topics.checks import Belongs
from topics.opener import Opener
from topics.pools import GroupPool, Pool
from topics.send_generate import GenerateSender
from topics.steering import dispatch, namespaces
from topics.steering.dispatch import Dispatcher
from topics.steering.policy import parse_policy
from workers.encode_flights import Flights, Sieve
from workers.encode_languages import languages
from workers.encode_work import EncodeWork, Joiner
from workers.encoder import EncoderEngine
from workers.encoders import Encoders
from workers.engines import media_catalog
from workers.engines.sim_encoder import SimEncoder
from workers.media import Decoders
from workers.options import EncodeOptions
from workers.pool_process import Surroundings
from workers.pool_process import serve as serve_pool
from workers.transcribe import Transcriptions

log = logging.getLogger(__name__)

# Jobs under way. Most only wait: for the batch, for another worker's artifact, for a store that is away.
JOBS = 64
# Media in memory, decoded: some tens of megabytes each, a few hundred at worst.
ITEMS = 12
THREADS = 2


class EncodeTrade:
    """Implements pool_process.Trade."""

    def __init__(self, around: Surroundings, options: EncodeOptions) -> None:
        settings = around.settings
        served = [one for one in manifests.served(settings).values() if options.pool in one.encoders]
        if not served:
            raise media_catalog.NoSuchEngine(f"none of the served models has an encoder of the pool {options.pool}")
        self._around = around
        self.models = list(dict.fromkeys(one.pool for one in served))
        self._notes = RedisArtifactNotes(around.redis)
        self._artifacts = Artifacts(around.blobs, self._notes)
        self._encoders = Encoders(
            options.pool,
            served,
            lambda manifest: _engine(manifest, options, Path(settings.model_dir)),
            Sieve(around.results),
            around.metrics,
            around.clock,
        )
        self._decoders = Decoders(THREADS, count=around.metrics.media_confined)
        self._flights = Flights(
            f"{settings.worker_name}/{uuid.uuid4().hex}",
            self._encoders,
            self._artifacts,
            self._notes,
            around.blobs,
            self._decoders.decode,
            around.metrics,
            max_tries=settings.max_attempts,
            items=ITEMS,
            threads=THREADS,
        )
        self._work = self._work_of(served)
        self.topic = names.encode(options.pool)
        belongs = Belongs(EncodeJob, self.models, options.pool)
        opener = Opener(belongs, around.blobs, around.letters, around.clock)
        self._pool = GroupPool(settings.kafka, self.topic, opener, self._work, JOBS, around.clock)

    @property
    def pool(self) -> Pool:
        return self._pool

    async def load(self, report: Callable[[str], None]) -> None:
        await asyncio.to_thread(self._decoders.start)
        await self._encoders.load(report)

    async def beside(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._encoders.run())
            group.create_task(self._flights.renew())
            for dispatcher in self._dispatchers.values():
                group.create_task(dispatcher.run())

    def cancel(self, request_id: str, reason: str) -> None:
        self._work.cancel(request_id, reason)

    def drain(self) -> None:
        """What has been read is finished here: it is short, and others would wait for its flights."""

    def cut_short(self) -> None:
        """Closing the pool does it: whoever reads a job again finds what was stored, or makes it."""

    async def close(self) -> None:
        await self._flights.close()
        self._encoders.close()
        await asyncio.to_thread(self._decoders.close)

    def _work_of(self, served: Iterable[Manifest]) -> EncodeWork:
        around = self._around
        settings, metrics, results = around.settings, around.metrics, around.results
        self._dispatchers = {model: _dispatcher(around, manifests.find(settings, model)) for model in self.models}
        senders = {
            model: _sender(around, manifests.find(settings, model), one) for model, one in self._dispatchers.items()
        }
        speaks = languages(served, Path(settings.model_dir))
        joiner = Joiner(self._artifacts, self._notes, speaks, senders, metrics)
        transcriptions = Transcriptions(
            self._flights, around.lives, results, metrics, around.clock, settings.max_attempts
        )
        return EncodeWork(self._flights, joiner, transcriptions, results, metrics, around.clock)


def _engine(manifest: Manifest, options: EncodeOptions, model_dir: Path) -> EncoderEngine:
    if options.engine == "sim":
        return SimEncoder(manifest.encoders[options.pool].yields, options.item_s)
    return media_catalog.encoder(manifest, options.pool, model_dir)


def _dispatcher(around: Surroundings, llm: Manifest) -> Dispatcher:
    policy, index = parse_policy(around.settings.steering), PrefixIndex(around.redis, llm.id)
    space = namespaces.of_model(llm, Path(around.settings.model_dir))
    return dispatch.by_index(llm, space, index, policy, around.producer, around.metrics, around.clock)


def _sender(around: Surroundings, llm: Manifest, dispatcher: Dispatcher) -> GenerateSender:
    return GenerateSender(llm.partitions, RedisLeases(around.redis, llm.id, clock=around.clock), dispatcher)


async def serve(settings: Settings, options: EncodeOptions) -> int:
    """Run one encoder until it is told to stop; returns the exit code.

    Raises:
        NoSuchEngine: no served model has an encoder of this pool, or one has an engine that is not known.
        ModelMissing, UnusableTokenizer: an LLM that requests go on to has no usable tokenizer here.
        Unavailable, Missing: as PoolProcess.run.
    """
    around = Surroundings(settings)
    return await serve_pool(around, EncodeTrade(around, options))
