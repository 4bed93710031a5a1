"""A whole gateway over memory twins, listening on loopback, with a scripted worker behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest

from gateway import app
from gateway.chat import Chat
from gateway.delivery import Delivery
from gateway.desk import Desk, Timeouts
from gateway.dispatch import Pool, Pools
from gateway.exchange import OpenRequests
from gateway.health import Health
from gateway.media import Media
from gateway.models import Served, ServedModels, codes_of, language_of
from gateway.render import Renderer
from gateway.server import listen, serve
from gateway.trail import Trails
from gateway.transcripts import Transcripts
from infra.clock import SystemClock
from infra.file_records import MemoryFileRecords
from infra.lifecycle import Life
from infra.memory import MemoryBlobs, MemoryFollower, MemoryHub, MemoryResults
from infra.metrics import Metrics
from schemas.manifest import Limits, Manifest, Source
from tests.pipeline.scripted import OneWorker, ScriptedPool
from topics.intake.uploads import UploadLimits, Uploads
from topics.steering.placer import LeastLoadedPlacer
from topics.tokens import ChatTokenizer

MODEL = "tiny"
DATA = Path(__file__).parent.parent / "data"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Gateway:
    """One gateway under test and what stands behind it."""

    def __init__(self, *, max_open: int = 100, drain_s: float = 5.0, max_body_bytes: int = 1 << 20) -> None:
        clock = SystemClock()
        self.hub = MemoryHub()
        self.pool = ScriptedPool(self.hub, MODEL)
        self.leases = OneWorker()
        self.follower = MemoryFollower(self.hub, "gw")
        self.metrics = Metrics()
        self.life = Life(drain_s)
        self.open = OpenRequests(max_open)
        self.broken: list[str] = []
        manifest = Manifest(
            MODEL, Source("hf", repo="tests/tiny"), Limits(context_tokens=600, max_n=4, max_logprobs=5), created=7
        )
        renderer = Renderer(TEMPLATE, {}, ChatTokenizer((DATA / "tiny_tokenizer.json").read_bytes()), clock)
        pool = Pool(
            MODEL, manifest.partitions, cast(Any, self.leases), self.pool, LeastLoadedPlacer(manifest.partitions)
        )
        self.pools = Pools({MODEL: pool})
        models = ServedModels([Served(manifest, 600, renderer, pool)])
        self.chat = Chat("gw", models, self.follower, MemoryResults(self.hub), self.open, Trails(), self.metrics, clock)
        services = {"bus": self._check("bus"), "redis": self._check("redis"), "store": MemoryBlobs().ping}
        health = Health(services, [pool], self.life)
        self.blobs = MemoryBlobs()
        self.uploads = Uploads(self.blobs, MemoryFileRecords(clock), clock, UploadLimits(100_000, 86_400, 30, 8))
        self.app = app.build(self.chat, self.uploads, health, self.metrics, Timeouts(30, 60), max_body_bytes, ["*"])
        self.url = ""
        self._clients: list[openai.AsyncOpenAI] = []

    def _check(self, name: str) -> Any:
        async def check() -> None:
            if name in self.broken:
                raise ConnectionError("nobody there")

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
    serving = asyncio.create_task(serve(gateway.app, listener, gateway.open, gateway.life, ready.set))
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
        await gateway.follower.close()


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with listening(Gateway()) as one:
        yield one
