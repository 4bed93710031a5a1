"""Artifacts from the object store, kept in this process: those that pictures of running conversations need again."""

import asyncio
from collections import OrderedDict
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from infra.clock import Clock
from infra.metrics import Metrics
from infra.patience import patiently
from infra.ports import Blobs
from schemas.media import Artifact
from topics import safetensors

READS_AT_ONCE = 8


class Fetched(msgspec.Struct, frozen=True):
    """An artifact with its rows, which keep the whole object in memory."""

    artifact: Artifact
    rows: memoryview
    object_bytes: int


class ArtifactCache:
    """At most `most_bytes` of objects, the one not used for longest goes first; no object may be larger than that.

    Who asks for what another one is already fetching waits for that one.
    """

    def __init__(self, blobs: Blobs, most_bytes: int, model: str, metrics: Metrics, clock: Clock) -> None:
        self._blobs = blobs
        self._most_bytes = most_bytes
        self._model = model
        self._metrics = metrics
        self._clock = clock
        self._held: OrderedDict[str, Fetched] = OrderedDict()
        self._held_bytes = 0
        self._fetching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def get(self, key: str) -> Fetched:
        """Waits for as long as the store gives no answer: bound it by the request's deadline.

        Raises:
            Missing: the store does not have it. Corrupt: the object is no artifact, or too large.
        """
        if (lock := self._fetching.get(key)) is None:
            lock = self._fetching[key] = asyncio.Lock()
        async with lock:  # whoever is cancelled in here leaves the fetching to the next one
            if key in self._held:
                self._held.move_to_end(key)
                self._metrics.artifact_from_cache(self._model)
                return self._held[key]
            raw = await patiently(partial(self._read, key), f"fetching {key}")
            found = Fetched(*safetensors.unpack(raw), len(raw))
            self._keep(key, found)
            return found

    async def _read(self, key: str) -> bytes:
        async with self._reads:
            began_at = self._clock.monotonic()
            raw = await self._blobs.read(key, self._most_bytes)
        self._metrics.artifact_from_store(self._model, self._clock.monotonic() - began_at, len(raw))
        return raw

    def _keep(self, key: str, found: Fetched) -> None:
        self._held[key] = found
        self._held_bytes += found.object_bytes
        while self._held_bytes > self._most_bytes:
            _, oldest = self._held.popitem(last=False)
            self._held_bytes -= oldest.object_bytes
