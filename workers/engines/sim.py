"""The `sim` engine: the worker model on a real clock. It computes nothing; a figure taken with it must say so.

With `speedup` 10, ten seconds of the modelled worker pass in one: ten times the request rate loads it as much.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as Row
from typing import cast
from zlib import crc32

import msgspec

from infra.clock import Clock, SystemClock
from infra.tasks import watched
from schemas.jobs import GenerateJob
from topics.steering import namespaces
from topics.steering.blocks import Namespace, begin, extend
from topics.steering.speed import Speed, SpeedLearner
from workers.engine import (
    CacheBatch,
    CacheEvent,
    CacheShape,
    Cleared,
    Delta,
    EmbedsShape,
    End,
    EngineDied,
    Load,
    Removed,
    Rows,
    Step,
    Stored,
    Unrunnable,
)
from workers.engines.rate import TokenRate
from workers.engines.sim_cache import Key
from workers.engines.sim_model import SimWorker
from workers.engines.sim_parts import Sequence, SimParams

# The shortest sleep between two looks at the model, in real seconds: several modelled steps may pass in one.
TICK_S = 0.005
# Cache changes kept for a reader that lags.
MAX_UNREAD = 100_000


class _Run(msgspec.Struct, eq=False):
    """One running job: its sequence in the model, and what its reader has not taken yet."""

    sequence: Sequence
    steps: asyncio.Queue[list[Step] | None]  # None: the engine died
    emitted: int = 0


class _Changes:
    """Cache changes until they are read; too many unread are dropped and the reader is told so."""

    def __init__(self) -> None:
        self._events: list[CacheEvent] = []
        self._gap = False
        self._any = asyncio.Event()

    def stored(self, keys: Row[Key], parent: Key | None) -> None:
        ours = cast(Row[bytes], keys)
        self._add(Stored(ours, cast(bytes | None, parent), (), 0, keys=ours))

    def removed(self, keys: Row[Key]) -> None:
        self._add(Removed(cast(Row[bytes], keys)))

    def cleared(self) -> None:
        self._add(Cleared())

    async def batch(self) -> CacheBatch:
        await self._any.wait()
        self._any.clear()
        events, self._events = self._events, []
        gap, self._gap = self._gap, False
        return CacheBatch(events, gap)

    def _add(self, event: CacheEvent) -> None:
        if len(self._events) >= MAX_UNREAD:
            self._events.clear()
            self._gap = True
        self._events.append(event)
        self._any.set()


class SimEngine:
    """Serves what the model says, when it says so; every token is a made-up one.

    It counts in our own block keys (topics.steering.blocks under `namespace`), of answers too.
    """

    name = "sim"
    embeds: EmbedsShape | None = EmbedsShape()  # of any rows, their digests are all that counts

    def __init__(
        self,
        params: SimParams,
        namespace: Namespace,
        speedup: float = 1.0,
        vocab_size: int = 49_152,
        clock: Clock | None = None,
    ) -> None:
        self.slots = 2 * params.max_sequences  # some wait inside, as they do in vLLM
        self.cache = CacheShape(params.blocks, params.block_tokens)
        self._params = params
        self._changes = _Changes()
        self._learner = SpeedLearner(Speed())
        self._namespace = namespace
        self._speedup = speedup
        self._vocab_size = vocab_size
        self._clock = clock or SystemClock()
        self._rate = TokenRate(self._clock)
        self._began_at = 0.0
        self._worker: SimWorker | None = None
        self._open: dict[_Run, None] = {}
        self._changed = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None

    async def start(self, report: Callable[[str], None]) -> None:
        report(f"sim engine: a model of time and memory, {self._speedup:g} times as fast; nothing is computed")
        self._began_at = self._clock.monotonic()
        self._worker = SimWorker(self._params, self._changes, self)
        self._driver = watched(self._drive(), "sim steps")
        self._driver.add_done_callback(self._stopped)

    async def run(self, job: GenerateJob, rows: Row[Rows] = ()) -> AsyncGenerator[Step]:
        self._refuse(job)
        if self._worker is None:
            raise EngineDied("the sim engine is not running")
        run = _Run(await self._sequence(job), asyncio.Queue())
        if self._worker is None:
            raise EngineDied("the sim engine died while the job was being prepared")
        self._open[run] = None
        self._worker.run_until(self._now())
        self._worker.submit(run.sequence)
        self._changed.set()
        try:
            while (steps := await run.steps.get()) is not None:
                for step in steps:
                    yield step
                    if isinstance(step, End):
                        return
        finally:
            self._open.pop(run, None)
            if self._worker is not None:
                self._worker.abort(run.sequence)
        raise EngineDied("the sim engine was told to die")

    def load(self) -> Load:
        worker = self._worker
        if worker is None:
            return Load()
        blocks = self._params.blocks
        return Load(
            running=len(worker.running),
            waiting=len(worker.waiting),
            kv_usage=worker.cache.referenced / blocks,
            kv_unused=worker.cache.blank / blocks,
            tokens_per_s=self._rate.per_s(),
            speed=self._learner.speed(),
        )

    async def cache_events(self) -> AsyncGenerator[CacheBatch]:
        while True:
            yield await self._changes.batch()

    def die(self) -> None:
        """What a crash of a real engine does: cache and runs are gone, until `restart`."""
        if self._driver is not None:
            self._driver.cancel()
            self._changes.cleared()
        self._driver = self._worker = None
        for run in self._open:
            run.steps.put_nowait(None)

    def _stopped(self, driver: asyncio.Task[None]) -> None:
        """As in the stub engine."""
        if not driver.cancelled() and driver is self._driver:
            self.die()

    async def restart(self, report: Callable[[str], None]) -> None:
        await self.close()
        await self.start(report)

    async def close(self) -> None:
        driver = self._driver
        self.die()
        if driver is not None:
            await asyncio.wait([driver])

    def first_token(self, sequence: Sequence, at: float) -> None:
        """Nothing to do: the driver compares counts."""

    def finished(self, sequence: Sequence, at: float) -> None:
        """Nothing to do: the driver compares counts."""

    def step(self, seconds: float, prefilled_tokens: int, sequences: int) -> None:
        """In the modelled worker's own time: a speed-up makes everything faster alike."""
        self._learner.step(seconds, prefilled_tokens, sequences)

    def _refuse(self, job: GenerateJob) -> None:
        if job.sampling.n != 1:
            raise Unrunnable("the sim engine makes one choice", "n")
        if job.sampling.logprobs is not None:
            raise Unrunnable("the sim engine has no log probabilities", "logprobs")
        if len(job.prompt_ids) + job.sampling.max_tokens > self._params.blocks * self._params.block_tokens:
            raise Unrunnable("prompt and answer do not fit into the cache", "max_tokens")

    async def _sequence(self, job: GenerateJob) -> Sequence:
        size, tokens = self._params.block_tokens, job.sampling.max_tokens
        whole = [*job.prompt_ids, *(self._token_id(job, number) for number in range(tokens))]
        root = begin(namespaces.of(self._namespace, job))
        chain = await asyncio.to_thread(extend, root, whole, size, namespaces.media(job))
        return Sequence(job, chain.keys, len(job.prompt_ids), tokens)

    def _token_id(self, job: GenerateJob, number: int) -> int:
        """Different answers, so that no two requests share what they cache of them."""
        return (crc32(job.head.request_id.encode()) + 7_919 * number) % self._vocab_size

    def _now(self) -> float:
        return (self._clock.monotonic() - self._began_at) * self._speedup

    async def _drive(self) -> None:
        while (worker := self._worker) is not None:
            worker.run_until(self._now())
            for run in list(self._open):
                self._emit(worker, run)
            ends = worker.next_event_at
            if ends is None:
                self._changed.clear()
                await self._changed.wait()
            else:
                await asyncio.sleep(max(TICK_S, (ends - self._now()) / self._speedup))

    def _emit(self, worker: SimWorker, run: _Run) -> None:
        """Hand over what the model has produced since the last look."""
        made, job = worker.generated(run.sequence), run.sequence.tag
        if made <= run.emitted or not isinstance(job, GenerateJob):
            return
        numbers = range(run.emitted, made)
        last = made >= job.sampling.max_tokens
        text = "".join(f" tok{number}" for number in numbers)
        ids = [self._token_id(job, number) for number in numbers]
        steps: list[Step] = [Delta(0, text, ids, "length" if last else None)]
        if last:
            steps.append(End(len(job.prompt_ids), made, run.sequence.cached_tokens))
        self._rate.add(len(ids))
        run.emitted = made
        run.steps.put_nowait(steps)
