"""A whole gateway over memory twins, listening on loopback, with a scripted worker behind it."""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest

from gateway import app
from gateway.admission import BodyRoom
from gateway.asyncapi_page import AsyncApiPage, Trial, trial_of
from gateway.chat import Chat
from gateway.delivery import Delivery
from gateway.desk import Desk, Timeouts
from gateway.dispatch import Pool, Pools
from gateway.exchange import OpenRequests
from gateway.health import Health
from gateway.http_heads import WireLimits
from gateway.links import Links
from gateway.media import Media
from gateway.media_pools import MediaPools
from gateway.models import Served, ServedModels, codes_of, language_of
from gateway.render import Renderer
from gateway.server import listen, serve
from gateway.siblings import Siblings
from gateway.speech import Speech
from gateway.trail import Trails
from gateway.transcripts import Transcripts
from infra.clock import SystemClock
from infra.faults import Unavailable
from infra.file_records import MemoryFileRecords
from infra.lifecycle import Life
from infra.memory import MemoryFollower, MemoryHub, MemoryResults
from infra.memory_blobs import MemoryBlobs
from infra.memory_notes import MemoryArtifactNotes
from infra.metrics import Metrics
from infra.pool_members import MemoryPoolMembers
from infra.settings import Settings
from tests.dispatching import unsteered
from tests.pipeline.models import CASCADE, DRAWS, MODEL, PLAIN
from tests.pipeline.scripted import WORKER, FakeWeb, OneWorker, ScriptedEncoder, ScriptedPool
from topics import asyncapi, names
from topics.artifacts import Artifacts
from topics.intake.intake import Intake
from topics.intake.uploads import UploadLimits, Uploads
from topics.tokens import ChatTokenizer

DATA = Path(__file__).parent.parent / "data"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@functools.cache
def topics_page(trial: Trial) -> AsyncApiPage:
    return AsyncApiPage(asyncapi.document(Settings(kafka="kafka:9092"), [PLAIN, CASCADE, DRAWS]), trial)


def served_by(pool: Pool, tokenizer: ChatTokenizer, renderer: Renderer) -> ServedModels:
    return ServedModels(
        [
            Served(one, 600, renderer, pool, language_of(one, tokenizer), codes_of(one, tokenizer))
            for one in (PLAIN, CASCADE, DRAWS)
        ]
    )


class Gateway:
    """One gateway under test and what stands behind it."""

    def __init__(
        self,
        *,
        max_open: int = 100,
        drain_s: float = 5.0,
        max_body_bytes: int = 1 << 20,
        room_bytes: int = 64 << 20,
        pool_wait_s: float = 0,
        presigned: bool = False,
        siblings: Siblings | None = None,
        cors_origins: Sequence[str] = (),
    ) -> None:
        clock = SystemClock()
        self.hub = MemoryHub()
        self.blobs = MemoryBlobs()
        self.pool = ScriptedPool(self.hub, MODEL, self.blobs)
        self.leases = OneWorker()
        self.follower = MemoryFollower(self.hub, "gw")
        self.metrics = Metrics()
        self.life = Life(drain_s)
        self.open = OpenRequests(max_open)
        self.room = BodyRoom(room_bytes)
        self.broken: list[str] = []
        self.uploads = Uploads(self.blobs, MemoryFileRecords(clock), clock, UploadLimits(100_000, 86_400, 30, 8))
        self.web = FakeWeb()
        self.notes = MemoryArtifactNotes(clock)
        tokenizer = ChatTokenizer((DATA / "tiny_tokenizer.json").read_bytes())
        dispatcher = unsteered(MODEL, PLAIN.partitions, self.pool)
        pool = Pool(MODEL, PLAIN.partitions, cast(Any, self.leases), dispatcher)
        self.pools = Pools({MODEL: pool}, self.metrics)
        models = served_by(pool, tokenizer, Renderer(TEMPLATE, {}, tokenizer, clock))
        self.results = MemoryResults(self.hub)
        self.members = MemoryPoolMembers(clock, ttl_ms=3_600_000)
        needed = names.media_pools([CASCADE, DRAWS])
        self.media_pools = MediaPools(needed, self.members, self.metrics, clock, pool_wait_s)
        self.encoder = ScriptedEncoder(self.pool, self.blobs, self.notes, models.get(CASCADE.id).language)
        self.pool.encoder = self.encoder
        self.desk = Desk(
            "gw", models, self.follower, self.results, self.open, self.media_pools, Trails(), self.metrics, clock
        )
        artifacts = Artifacts(self.blobs, self.notes)
        self.media = Media(Intake(self.blobs, cast(Any, self.web), self.uploads), artifacts, self.pool)
        self.links = Links("store-secret", "", clock)
        links = None if presigned else self.links
        delivery = Delivery(self.blobs, links)
        self.chat = Chat(self.desk, self.media, delivery, Transcripts(self.blobs, clock))
        services = {"bus": self._check("bus"), "redis": self._check("redis"), "store": self.blobs.ping}
        health = Health(services, [pool], self.media_pools, self.life)
        self.app = app.build(
            app.Api(self.chat, Speech(self.desk, delivery, self.pool), self.uploads, self.blobs, links, siblings),
            health,
            self.metrics,
            topics_page(trial_of(models.get(MODEL))),
            Timeouts(30, 60),
            app.Edge(max_body_bytes, self.open, self.room, cors_origins),
        )
        self.wire = WireLimits()
        self.url = ""
        self._clients: list[openai.AsyncOpenAI] = []

    def _check(self, name: str) -> Any:
        async def check() -> None:
            if name in self.broken:
                raise Unavailable("nobody there")

        return check

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        """The official SDK, closed with the gateway; it does not try again unless told to."""
        self._clients.append(
            openai.AsyncOpenAI(**{"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0} | options)
        )
        return self._clients[-1]

    def http(self) -> httpx.AsyncClient:
        """For what the SDK hides; to be used as a context."""
        return httpx.AsyncClient(base_url=self.url, timeout=10)

    async def hang_up(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def listening(gateway: Gateway) -> AsyncIterator[Gateway]:
    listener = listen("127.0.0.1", 0)
    gateway.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ready = asyncio.Event()
    await gateway.follower.start()
    await gateway.pools.start()
    for name in gateway.media_pools:
        await gateway.members.stay(name, WORKER.worker)
    await gateway.media_pools.start()
    serving = asyncio.create_task(serve(gateway.app, listener, gateway.wire, gateway.open, gateway.life, ready.set))
    try:
        async with asyncio.timeout(10):
            await ready.wait()
        yield gateway
    finally:
        await gateway.hang_up()
        gateway.life.stop()
        await asyncio.wait_for(serving, 15)
        await gateway.pool.close()
        await gateway.pools.close()
        await gateway.media_pools.close()
        await gateway.follower.close()


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with listening(Gateway()) as one:
        yield one
