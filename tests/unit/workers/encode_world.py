"""Encoder workers over memory twins, each of which can be killed at any of its steps."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from infra.alive import MemoryLives
from infra.clock import SystemClock
from infra.memory import MemoryHub, MemoryResults
from infra.memory_blobs import MemoryBlobs
from infra.memory_leases import MemoryLeases
from infra.memory_notes import MemoryArtifactNotes
from infra.metrics import Metrics
from schemas.codec import decode_message
from schemas.events import Event
from schemas.jobs import EncodeJob, GenerateJob, Head, Sampling
from schemas.manifest import Encoder, Limits, Manifest, MediaLimits, Source
from schemas.media import EncoderKind, MediaKind, Room, Slot
from schemas.refs import BlobRef
from tests.dispatching import unsteered
from topics import names
from topics.artifacts import Artifacts
from topics.fingerprints import artifact_key, fingerprint
from topics.join import Language
from topics.memory import MemoryBus, MemoryProducer
from topics.records import Record
from topics.send_generate import GenerateSender
from workers.encode_flights import Flights, Sieve
from workers.encode_work import EncodeWork, Joiner
from workers.encoder import Decoded, Encoded, MediaFault
from workers.encoders import Encoders
from workers.transcribe import Transcriptions

FLIGHT_TTL_MS = 300
MANIFEST = Manifest(
    "m",
    Source("hf"),
    Limits(512),
    encoders={"vision": Encoder("eye", "text"), "audio": Encoder("ear", "text")},
)


class Killed(Exception):
    """The process has died. Nothing that it calls does anything any more."""


class Fuse:
    """Counts the steps of one worker, and kills it before the one asked for."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.steps = 0

    @property
    def blown(self) -> bool:
        return self.at is not None and self.steps >= self.at

    def step(self) -> None:
        if self.blown:
            raise Killed
        self.steps += 1

    def around(self, port: Any) -> Any:
        """The port, whose every verb is a step."""
        return _Fused(port, self)


class _Fused:
    def __init__(self, port: Any, fuse: Fuse) -> None:
        self._port = port
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._port, name)
        if name == "stream":
            return verb

        async def step(*args: Any, **kwargs: Any) -> Any:
            self._fuse.step()
            return await verb(*args, **kwargs)

        return step


class Eye:
    """Tells the bytes it was given; counts them. `faults` by those bytes."""

    batch = 4

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.faults: dict[bytes, Exception | MediaFault] = {}

    def load(self, report: Any) -> None:
        report("ready")

    def encode(self, items: Sequence[Any]) -> list[Encoded | MediaFault]:
        return [self._encode(item.data) for item in items]

    def _encode(self, data: bytes) -> Encoded | MediaFault:
        self.seen.append(data)
        fault = self.faults.get(data)
        if isinstance(fault, MediaFault):
            return fault
        if fault is not None:
            raise fault
        return Encoded("text", text=f"saw {data.decode()}", language="en", duration_s=1.5)


def decode(kind: MediaKind, pool: EncoderKind, data: bytes, limits: MediaLimits) -> Decoded:
    if data == b"broken":
        raise MediaFault("media_unreadable", "the picture is cut off")
    return SimpleNamespace(data=data)  # type: ignore[return-value]  # what these engines take


class World:
    def __init__(self) -> None:
        self.clock = SystemClock()
        self.hub = MemoryHub()
        self.blobs = MemoryBlobs()
        self.notes = MemoryArtifactNotes(self.clock, flight_ttl_ms=FLIGHT_TTL_MS)
        self.bus = MemoryBus({names.generate("m"): 4, names.DEAD_LETTERS: 1})
        self.results = MemoryResults(self.hub)
        self.eye = Eye()
        self.metrics = Metrics()

    async def slots(self, *contents: str, pool: EncoderKind = "vision") -> list[Slot]:
        return [await self._slot(number, one.encode(), pool) for number, one in enumerate(contents)]

    async def _slot(self, number: int, data: bytes, pool: EncoderKind) -> Slot:
        digest = hashlib.sha256(data).hexdigest()
        source = BlobRef(f"media/{digest}", digest, len(data))
        await self.blobs.put(source, data)
        key = artifact_key(fingerprint(MANIFEST, pool), digest)
        return Slot(number, "image", pool, f"m/{pool}", source, key, f"messages[0].content[{number}]")

    def head(self, request_id: str = "r", seconds: float = 60.0) -> Head:
        now = self.clock.now()
        return Head(request_id, "m", deadline_at=now + seconds, created_at=now, reply_to="gw")

    def jobs(self, slots: list[Slot], head: Head | None = None, context_tokens: int = 400) -> list[EncodeJob]:
        """One for each slot."""
        head = head or self.head()
        draft = GenerateJob(head, list(range(10)), Sampling(max_tokens=1))
        return [EncodeJob(head, slots, number, draft, Room(context_tokens)) for number in range(len(slots))]

    def sent(self) -> list[GenerateJob]:
        """All generate jobs so far, without the ways they took."""
        return [msgspec.structs.replace(one, placement=None, decision=None) for _, one in self.sent_on()]

    def sent_on(self) -> list[tuple[Record, GenerateJob]]:
        topic = names.generate("m")
        records = [one for partition in range(4) for one in self.bus.log(topic, partition)]
        jobs = [(one, decode_message(one.value or b"")) for one in records]
        return [(record, job) for record, job in jobs if isinstance(job, GenerateJob)]

    def events(self, request_id: str = "r") -> list[Event]:
        return [event for batch in self.hub.request("m", request_id).stream for event in batch.events]

    @asynccontextmanager
    async def worker(self, name: str = "a", fuse: Fuse | None = None) -> AsyncIterator[EncodeWork]:
        fuse = fuse or Fuse()
        blobs, notes, results = fuse.around(self.blobs), fuse.around(self.notes), fuse.around(self.results)
        producer = MemoryProducer(self.bus, blobs, self.clock)
        await producer.start()
        artifacts = Artifacts(blobs, notes)
        encoders = Encoders("vision", [MANIFEST], lambda _: self.eye, Sieve(results), self.metrics, self.clock)
        flights = Flights(
            name, encoders, artifacts, notes, blobs, decode, self.metrics, max_tries=3, items=8, threads=1
        )
        sender = GenerateSender(4, MemoryLeases(self.clock), unsteered("m", 4, fuse.around(producer)))
        language = Language(lambda text: [len(word) for word in text.split()], {})
        joiner = Joiner(artifacts, notes, {"m": language}, {"m": sender}, self.metrics)
        lives = MemoryLives(self.hub, name)
        transcriptions = Transcriptions(flights, lives, results, self.metrics, self.clock, max_attempts=3)
        work = EncodeWork(flights, joiner, transcriptions, results, self.metrics, self.clock)
        async with _running(encoders, flights):
            yield work


@asynccontextmanager
async def _running(encoders: Encoders, flights: Flights) -> AsyncIterator[None]:
    import asyncio

    tasks = [asyncio.create_task(encoders.run()), asyncio.create_task(flights.renew())]
    yield
    await flights.close()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    encoders.close()
