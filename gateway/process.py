"""One gateway process: builds every part, starts them in order, and takes them down in the reverse one."""

import gc
import logging
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from litestar.types import ASGIApp

from gateway import app
from gateway.admission import BodyRoom
from gateway.asyncapi_page import AsyncApiPage, trial_of
from gateway.chat import Chat
from gateway.delivery import Delivery
from gateway.desk import Desk, Timeouts
from gateway.dispatch import Pool, Pools
from gateway.exchange import OpenRequests
from gateway.health import Check, Health
from gateway.http_heads import WireLimits
from gateway.links import Links
from gateway.media import Media
from gateway.media_pools import MediaPools
from gateway.member import Member
from gateway.models import Served, ServedModels, codes_of, language_of
from gateway.render import Renderer
from gateway.server import listen, serve
from gateway.siblings import Siblings
from gateway.speech import Speech
from gateway.trail import Trails
from gateway.transcripts import Transcripts
from infra import manifests, model_files, model_paths, redis_client, retention
from infra.artifact_notes import RedisArtifactNotes
from infra.blobs import S3Blobs
from infra.clock import SystemClock
from infra.file_records import RedisFileRecords
from infra.follower import RedisFollower
from infra.leases import RedisLeases
from infra.lifecycle import Life, signals
from infra.metrics import Metrics
from infra.pool_members import RedisPoolMembers
from infra.prefix_index import PrefixIndex
from infra.results import RedisResults
from infra.settings import Settings
from infra.sweep_turns import SweepTurns
from infra.sweeper import Sweeper
from schemas.manifest import Manifest
from topics import admin, asyncapi, names
from topics.artifacts import Artifacts
from topics.intake import setup as intake
from topics.kafka import KafkaProducer
from topics.steering import dispatch, namespaces
from topics.steering.policy import parse_policy
from topics.tokens import ChatTokenizer

log = logging.getLogger(__name__)

# Thousands of open streams are millions of objects that live long and form few cycles. With Python's own thresholds the
# collector walks them all every few seconds: measured at 5,000 streams, pauses of 0.5 s.
GC_THRESHOLDS = (10_000, 20, 100)

# An upload's time is over when it is stored; only what does not end then is cut off as a connection.
STORING_S = 30


class GatewayProcess:
    """The parts of one gateway, which may be one of several on its port. `run` is its whole life.

    Raises:
        WrongManifest, ModelMissing, UnusableTokenizer: a served model cannot be served.
        PortTaken: somebody else listens there.
        UnknownPolicy: the steering setting names none.
    """

    def __init__(self, settings: Settings, member: Member | None = None) -> None:
        self._settings = settings
        self._member = member
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._life = Life(settings.drain_s)
        self._redis = redis_client.connect(settings.redis)
        self._blobs = S3Blobs(settings)
        self._producer = KafkaProducer(settings.kafka, self._blobs)
        self._follower = RedisFollower(self._redis, settings.gateway_name, self._metrics, self._clock)
        self._policy = parse_policy(settings.steering)
        pools: dict[str, Pool] = {}
        served = list(manifests.served(settings).values())
        self._models = ServedModels([self._served(one, pools) for one in served])
        self._pools = Pools(pools, self._metrics)
        members, wait_s = RedisPoolMembers(self._redis), settings.pool_wait_s
        self._media_pools = MediaPools(names.media_pools(served), members, self._metrics, self._clock, wait_s)
        records = RedisFileRecords(self._redis, self._clock)
        self._intake = intake.from_settings(settings, self._blobs, records, self._clock)
        sweeper = Sweeper(self._blobs, RedisArtifactNotes(self._redis), retention.kinds(settings), self._clock)
        self._sweeps = SweepTurns(sweeper, self._redis, settings.sweep_every_s)
        self._open = OpenRequests(settings.max_open_requests)
        self._listener = member.shared if member else listen(settings.host, settings.port)

    async def run(self) -> None:
        """Raises Unavailable when the broker or the object store cannot be reached at start."""
        async with AsyncExitStack() as parts:
            if self._member is None:
                await parts.enter_async_context(signals(self._life))
            else:
                await parts.enter_async_context(signals(self._life, [signal.SIGTERM]))
                await parts.enter_async_context(self._member.belonging(self._life))
            parts.push_async_callback(self._redis.aclose)
            parts.push_async_callback(self._blobs.close)
            parts.callback(self._intake.close)
            await self._blobs.start()
            parts.push_async_callback(self._producer.close)
            await self._producer.start()
            parts.push_async_callback(self._follower.close)
            await self._follower.start()
            parts.push_async_callback(self._pools.close)
            await self._pools.start()
            parts.push_async_callback(self._media_pools.close)
            await self._media_pools.start()
            parts.push_async_callback(self._sweeps.close)
            self._sweeps.start()
            _calm_collector()
            served, wire = self._app(), self._wire()
            if self._member is None:
                await serve(served, self._listener, wire, self._open, self._life, self._say_where)
            elif await self._member.may_listen(self._life):
                private = self._member.private
                await serve(served, self._listener, wire, self._open, self._life, self._member.listening, private)

    def _app(self) -> ASGIApp:
        settings, metrics = self._settings, self._metrics
        desk = Desk(
            settings.gateway_name,
            self._models,
            self._follower,
            RedisResults(self._redis, metrics),
            self._open,
            self._media_pools,
            Trails(),
            metrics,
            self._clock,
        )
        artifacts = Artifacts(self._blobs, RedisArtifactNotes(self._redis))
        media = Media(self._intake, artifacts, self._producer)
        # A store that clients can reach serves them itself.
        links = None if settings.s3_public_endpoint else self._links()
        delivery = Delivery(self._blobs, links)
        chat = Chat(desk, media, delivery, Transcripts(self._blobs, self._clock))
        speech = Speech(desk, delivery, self._producer)
        health = Health(self._services(), self._models.pools(), self._media_pools, self._life)
        timeouts = Timeouts(settings.default_deadline_s, settings.max_deadline_s)
        origins = [one.strip() for one in settings.cors_origins.split(",") if one.strip()]
        api = app.Api(chat, speech, self._intake.uploads, self._blobs, links, self._siblings())
        edge = app.Edge(settings.max_body_bytes, self._open, BodyRoom(settings.max_held_body_bytes), origins)
        return app.build(api, health, metrics, self._topics_page(), timeouts, edge)

    def _wire(self) -> WireLimits:
        return WireLimits(body_s=self._settings.body_timeout_s, form_s=self._settings.upload_timeout_s + STORING_S)

    def _siblings(self) -> Siblings:
        if self._member is None:
            return Siblings()
        return Siblings(self._settings.gateway_name, self._member.private_port, self._member.others)

    def _links(self) -> Links:
        return Links(self._settings.s3_secret_key.value, self._settings.public_url, self._clock)

    def _topics_page(self) -> AsyncApiPage:
        models = self._models.manifests()
        return AsyncApiPage(asyncapi.document(self._settings, models), trial_of(self._models.get(models[0].id)))

    def _served(self, manifest: Manifest, pools: dict[str, Pool]) -> Served:
        files = model_files.read(model_paths.of_llm(manifest, Path(self._settings.model_dir)))
        tokenizer = ChatTokenizer(files.tokenizer_json.read_bytes())
        special = {
            "bos": files.special.bos,
            "eos": files.special.eos,
            "unk": files.special.unk,
            "pad": files.special.pad,
        }
        # As in transformers, a token that the model does not have is no variable at all.
        variables = {f"{name}_token": text for name, text in special.items() if text}
        context = min(manifest.limits.context_tokens, files.max_context_tokens or manifest.limits.context_tokens)
        renderer = Renderer(files.chat_template, variables, tokenizer, self._clock)
        if manifest.pool not in pools:
            # By the manifest of the LLM itself: its workers know nothing of the other models that use it.
            pools[manifest.pool] = self._pool(manifests.find(self._settings, manifest.pool))
        language, codes = language_of(manifest, tokenizer), codes_of(manifest, tokenizer)
        return Served(manifest, context, renderer, pools[manifest.pool], language, codes)

    def _pool(self, llm: Manifest) -> Pool:
        leases = RedisLeases(self._redis, llm.id, clock=self._clock)
        space, index = namespaces.of_model(llm, Path(self._settings.model_dir)), PrefixIndex(self._redis, llm.id)
        dispatcher = dispatch.by_index(llm, space, index, self._policy, self._producer, self._metrics, self._clock)
        return Pool(llm.id, llm.partitions, leases, dispatcher)

    def _services(self) -> Mapping[str, Check]:
        bootstrap = self._settings.kafka
        return {
            "bus": lambda: admin.ping(bootstrap),
            "redis": lambda: redis_client.ping(self._redis),
            "store": self._blobs.ping,
        }

    def _say_where(self) -> None:
        host, port = self._listener.getsockname()[:2]
        log.info("listening on http://%s:%d, as %s", host, port, self._settings.gateway_name)


def _calm_collector() -> None:
    """What has been built by now stays for the life of the process; cycles are few."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
