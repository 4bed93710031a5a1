"""The encoders that one worker serves: those of all served models that have one of its pool."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from infra.clock import Clock
from infra.metrics import Metrics
from schemas.errors import TriptychError
from schemas.jobs import Head
from schemas.manifest import Manifest, MediaLimits
from schemas.media import EncoderKind, Slot
from topics.fingerprints import artifact_key, fingerprint
from workers.batcher import Batcher
from workers.encoder import Decoded, Encoded, EncoderEngine, MediaFault


class Waiting(msgspec.Struct, frozen=True):
    """An item on its way into a forward, and the requests that wait for it: more may come while it waits."""

    item: Decoded
    heads: list[Head]


Wanted: TypeAlias = Callable[[Sequence[Waiting]], Awaitable[Sequence[bool]]]


class LoadedEncoder:
    """An engine, and the batches it is given. `name` is that of the first model that has it."""

    def __init__(
        self, name: str, pool: EncoderKind, engine: EncoderEngine, wanted: Wanted, metrics: Metrics, clock: Clock
    ) -> None:
        self.name = name
        self.engine = engine
        self._pool = pool
        self._metrics = metrics
        self._clock = clock
        self.batcher = Batcher(self._forward, engine.batch, wanted=wanted)

    def _forward(self, batch: Sequence[Waiting]) -> Sequence[Encoded | MediaFault]:
        began = self._clock.monotonic()
        found = self.engine.encode([one.item for one in batch])
        self._metrics.batch_encoded(self._pool, self.name, len(batch), self._clock.monotonic() - began)
        return found


class ServedEncoder(msgspec.Struct, frozen=True):
    """One model's encoder. Models that declare the same one share what is loaded, not the limits."""

    fingerprint: str
    limits: MediaLimits
    loaded: LoadedEncoder


class Encoders:
    """Of one pool."""

    def __init__(
        self,
        pool: EncoderKind,
        manifests: Iterable[Manifest],
        engine_of: Callable[[Manifest], EncoderEngine],
        wanted: Wanted,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.pool = pool
        self._loaded: dict[str, LoadedEncoder] = {}
        self._served: dict[str, ServedEncoder] = {}
        for manifest in manifests:
            if pool in manifest.encoders:
                name, known = f"{manifest.id}/{pool}", fingerprint(manifest, pool)
                if known not in self._loaded:
                    self._loaded[known] = LoadedEncoder(name, pool, engine_of(manifest), wanted, metrics, clock)
                self._served[name] = ServedEncoder(known, manifest.media, self._loaded[known])

    def of(self, slot: Slot, language: str = "") -> ServedEncoder:
        """The encoder that a slot asks for.

        Raises:
            TriptychError: internal, when this worker has no such encoder, or has another version of it: what it makes
                must not lie where the other's is looked for.
        """
        served = self._served.get(slot.encoder)
        if served is None:
            raise TriptychError("internal", f"this pool has no encoder {slot.encoder}", param=slot.param)
        key = artifact_key(served.fingerprint, slot.source.digest, language, of_video=slot.kind == "video")
        if slot.artifact != key:
            raise TriptychError("internal", f"this pool has another version of {slot.encoder}", param=slot.param)
        return served

    async def load(self, report: Callable[[str], None]) -> None:
        """One after the other: each may need much memory while it loads."""
        for one in self._loaded.values():
            report(f"loading {one.name}")
            await asyncio.to_thread(one.engine.load, report)

    async def run(self) -> None:
        """Compute batches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._loaded.values():
                group.create_task(one.batcher.run(), name=one.name)

    def close(self) -> None:
        for one in self._loaded.values():
            one.batcher.close()
