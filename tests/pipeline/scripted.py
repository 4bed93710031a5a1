"""Workers that follow scripts, behind a producer that delivers at once: what a test says is what the pools do."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from infra.memory import MemoryHub, MemoryResults
from infra.memory_blobs import MemoryBlobs
from infra.memory_notes import MemoryArtifactNotes
from infra.ports import Incarnation, Outgoing, PoolView
from schemas.events import Cancelled, Event, Failed, Finished, Made, Part, Token, Usage
from schemas.jobs import DecodeJob, EncodeJob, GenerateJob, Job
from schemas.media import Artifact, ImageOptions
from schemas.refs import BlobRef
from schemas.signals import Beat
from tests.waiting import until
from topics.artifacts import Artifacts
from topics.bus import Position
from topics.join import Language, assemble

WORKER = Incarnation("worker-1", 1)


class Run:
    """One job in the hands of the scripted worker."""

    def __init__(self, job: Job, hub: MemoryHub, blobs: MemoryBlobs | None = None) -> None:
        self.any_job = job
        self.was_cancelled = False
        self.states: list[str] = []  # what became of each append
        self._hub = hub
        self._blobs = blobs
        self._results = MemoryResults(hub)
        self._seq = 0
        self._made = 0

    @property
    def job(self) -> GenerateJob:
        assert isinstance(self.any_job, GenerateJob)
        return self.any_job

    @property
    def decode(self) -> DecodeJob:
        assert isinstance(self.any_job, DecodeJob)
        return self.any_job

    @property
    def encode(self) -> EncodeJob:
        assert isinstance(self.any_job, EncodeJob)
        return self.any_job

    async def emit(self, *events: Event) -> None:
        """Events are numbered here; give them any seq."""
        numbered = []
        for event in events:
            self._seq += 1
            attempt = event.attempt or 1
            numbered.append(msgspec.structs.replace(event, attempt=attempt, seq=self._seq))
        self.states += await self._results.append([Outgoing(self.any_job.head, numbered)])

    async def say(self, *texts: str, index: int = 0) -> None:
        for text in texts:
            await self.emit(token(text, index))

    async def made(self, data: bytes, text: str = "", **rest: Any) -> None:
        """Put it into the store and say so, as a decoder does."""
        assert self._blobs is not None
        image = isinstance(self.decode.options, ImageOptions)
        digest = hashlib.sha256(data).hexdigest()
        kind = f"{'image' if image else 'audio'}/{self.decode.options.format}"
        ref = BlobRef(f"outputs/{self.decode.head.request_id}/{self._made}", digest, len(data), kind)
        await self._blobs.put(ref, data)
        await self.emit(Made(0, 0, "image" if image else "audio", ref, self._made, text=text, **rest))
        self._made += 1

    async def finish(self, completion: int = 1) -> None:
        prompt = len(self.any_job.prompt_ids) if isinstance(self.any_job, GenerateJob) else 0
        usage = Usage(prompt, completion, 3)
        await self.emit(Finished(0, 0, usage, worker=WORKER.worker, partition=7, queue_s=0.01))

    async def fail(self, code: str, message: str = "it failed") -> None:
        await self.emit(Failed(0, 0, code, message))

    async def cancelled(self, within_s: float = 5.0) -> None:
        """Wait until somebody cancels this request, then end it as a worker does."""
        state = self._hub.request(self.any_job.head.model, self.any_job.head.request_id)
        await until(lambda: state.cancelled, within_s)
        self.was_cancelled = True
        await self.emit(Cancelled(0, 0, "cancelled"))


Script = Callable[[Run], Awaitable[None]]


def token(text: str, index: int = 0, **rest: Any) -> Token:
    return Token(0, 0, index, text, [1], **rest)


async def hello(run: Run) -> None:
    """The script unless a test sets another."""
    for index in range(run.job.sampling.n):
        await run.say("Hel", "lo", index=index)
        await run.emit(token("!", index, finish_reason="stop"))
    await run.finish(3 * run.job.sampling.n)


async def make(run: Run) -> None:
    """A decoder's, unless a test sets another: speech is as long as its text, a picture has the digits of its codes."""
    job = run.decode
    if isinstance(job.options, ImageOptions):
        await run.made(b"picture of " + b",".join(b"%d" % code for code in job.codes), width=8, height=8)
    else:
        await run.made(job.text.encode() * 2, job.text, duration_s=1.0)
    await run.finish(0)


class ScriptedPool:
    """Producer and workers in one. The lists keep what came; `sent` has topic, partition and headers of everything."""

    def __init__(self, hub: MemoryHub, model: str, blobs: MemoryBlobs | None = None) -> None:
        hub.alive[(model, WORKER.worker)] = WORKER.epoch
        self._hub = hub
        self._blobs = blobs
        self._tasks: set[asyncio.Task[None]] = set()
        self.worker = WORKER
        self.script: Script = hello
        self.decoder: Script = make
        self.encoder: Script = self._ignored
        self.refuse: Exception | None = None
        self.jobs: list[GenerateJob] = []
        self.encode_jobs: list[EncodeJob] = []
        self.decode_jobs: list[DecodeJob] = []
        self.sent: list[tuple[str, int | None, list[tuple[str, bytes]]]] = []
        self.runs: list[Run] = []
        self.decoding: list[Run] = []

    async def start(self) -> None: ...

    async def send(
        self,
        topic: str,
        message: Any,
        *,
        partition: int | None = None,
        key: bytes | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> Position:
        if self.refuse is not None:
            raise self.refuse
        self.sent.append((topic, partition, headers or []))
        kept: dict[type, list[Any]] = {
            GenerateJob: self.jobs,
            EncodeJob: self.encode_jobs,
            DecodeJob: self.decode_jobs,
        }
        kept[type(message)].append(message)
        task = asyncio.create_task(self._run(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Position(topic, partition or 0, len(self.sent))

    async def part(self, run: Run, kind: Any, number: int, *, index: int = 0, attempt: int = 1, **job: Any) -> str:
        """What an LLM worker does about a piece of its answer: say so, then ask for it."""
        request_id = f"{run.job.head.request_id}.{attempt}.{index}.{number}"
        await run.emit(Part(0, 0, index, number, kind, request_id))
        output = next(one for one in run.job.outputs if one.decoder.endswith(f"/{kind}"))
        head = msgspec.structs.replace(run.job.head, request_id=request_id, parent=run.job.head.request_id)
        await self.send(f"decode.{kind}", DecodeJob(head, output.decoder, output.options, **job))
        return request_id

    async def _run(self, job: Job) -> None:
        run = Run(job, self._hub, self._blobs)
        match job:
            case GenerateJob():
                await MemoryResults(self._hub).claim(job.head, WORKER, 3)
                self.runs.append(run)
                await self.script(run)
            case DecodeJob():
                await MemoryResults(self._hub).claim(job.head, WORKER, 3)
                self.decoding.append(run)
                await self.decoder(run)
            case EncodeJob():
                await self.encoder(run)

    async def _ignored(self, run: Run) -> None: ...

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ScriptedEncoder:
    """An encoder that describes each item as `of` says, and sends the request on when its set is complete."""

    def __init__(self, pool: ScriptedPool, blobs: MemoryBlobs, notes: MemoryArtifactNotes, language: Language) -> None:
        self._pool = pool
        self._artifacts = Artifacts(blobs, notes)
        self.language = language
        self._joined: set[str] = set()
        self.made: list[str] = []  # artifact keys
        self.of: Callable[[EncodeJob], Artifact] = self.describe

    @staticmethod
    def describe(job: EncodeJob) -> Artifact:
        return Artifact("text", "fp", job.slot.source.digest, text=f"{job.slot.kind} {job.slot.source.size_bytes}")

    async def __call__(self, run: Run) -> None:
        job = run.encode
        artifact = self.of(job)
        await self._artifacts.store(job.slot.artifact, artifact, bytes(4 * artifact.rows * artifact.width))
        self.made.append(job.slot.artifact)
        found = [one for one in await self._artifacts.lookup(job.slots) if one is not None]
        if job.head.request_id in self._joined or job.draft is None or job.room is None:
            return
        if len(found) == len(job.slots):
            self._joined.add(job.head.request_id)
            joined = assemble(job.draft, job.slots, found, job.room, self.language)
            await self._pool.send(f"generate.{job.head.model}", joined, partition=0)


class FakeWeb:
    """Pages of the internet, by URL."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}

    @asynccontextmanager
    async def opened(self, url: str, most_bytes: int) -> AsyncIterator[AsyncIterator[bytes]]:
        async def body() -> AsyncIterator[bytes]:
            yield self.pages[url]

        yield body()


class OneWorker:
    """Leases, as a gateway sees them: one worker owns everything, or nobody does."""

    def __init__(self) -> None:
        self.present = True

    async def view(self, partitions: int) -> PoolView:
        if not self.present:
            return PoolView(owners={}, beats={})
        beat = Beat(WORKER.worker, WORKER.epoch, at=0.0, slots=8, engine="scripted")
        return PoolView(owners=dict.fromkeys(range(partitions), WORKER), beats={WORKER.worker: beat})
