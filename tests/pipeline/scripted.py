"""A worker that follows a script, behind a producer that delivers at once: what a test says is what the pools do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from infra.memory import MemoryHub, MemoryResults
from infra.ports import Incarnation, Outgoing, PoolView
from schemas.events import Cancelled, Event, Failed, Finished, Token, Usage
from schemas.jobs import GenerateJob
from schemas.signals import Beat
from tests.waiting import until
from topics.bus import Position

WORKER = Incarnation("worker-1", 1)


class Run:
    """One job in the hands of the scripted worker."""

    def __init__(self, job: GenerateJob, hub: MemoryHub) -> None:
        self.job = job
        self.was_cancelled = False
        self.states: list[str] = []  # what became of each append
        self._hub = hub
        self._results = MemoryResults(hub)
        self._seq = 0

    async def emit(self, *events: Event) -> None:
        """Events are numbered here; give them any seq."""
        numbered = []
        for event in events:
            self._seq += 1
            numbered.append(msgspec.structs.replace(event, attempt=1, seq=self._seq))
        self.states += await self._results.append([Outgoing(self.job.head, numbered)])

    async def say(self, *texts: str, index: int = 0) -> None:
        for text in texts:
            await self.emit(token(text, index))

    async def finish(self, completion: int = 1) -> None:
        usage = Usage(len(self.job.prompt_ids), completion, 3)
        await self.emit(Finished(0, 0, usage, worker=WORKER.worker, partition=7, queue_s=0.01))

    async def fail(self, code: str, message: str = "it failed") -> None:
        await self.emit(Failed(0, 0, code, message))

    async def cancelled(self, within_s: float = 5.0) -> None:
        """Wait until somebody cancels this request, then end it as a worker does."""
        state = self._hub.request(self.job.head.model, self.job.head.request_id)
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


class ScriptedPool:
    """Producer and worker in one. `jobs` and `sent` keep what came."""

    def __init__(self, hub: MemoryHub, model: str) -> None:
        hub.alive[(model, WORKER.worker)] = WORKER.epoch
        self._hub = hub
        self._tasks: set[asyncio.Task[None]] = set()
        self.script: Script = hello
        self.refuse: Exception | None = None
        self.jobs: list[GenerateJob] = []
        self.sent: list[tuple[str, int | None, list[tuple[str, bytes]]]] = []
        self.runs: list[Run] = []

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
        self.jobs.append(message)
        self.sent.append((topic, partition, headers or []))
        task = asyncio.create_task(self._run(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Position(topic, partition or 0, len(self.jobs))

    async def _run(self, job: GenerateJob) -> None:
        await MemoryResults(self._hub).claim(job.head, WORKER, 3)
        run = Run(job, self._hub)
        self.runs.append(run)
        await self.script(run)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class OneWorker:
    """Leases, as a gateway sees them: one worker owns everything, or nobody does."""

    def __init__(self) -> None:
        self.present = True

    async def view(self, partitions: int) -> PoolView:
        if not self.present:
            return PoolView(owners={}, beats={})
        beat = Beat(WORKER.worker, WORKER.epoch, at=0.0, slots=8, engine="scripted")
        return PoolView(owners=dict.fromkeys(range(partitions), WORKER), beats={WORKER.worker: beat})
