"""A stub: no model, no meaning. It emits " tok0 tok1 ..." at a fixed pace, to measure and break everything around it.

Every figure taken with it must say so; its name is shown with them.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from infra.clock import Clock, SystemClock
from infra.tasks import watched
from schemas.events import Alternative, TokenLogprob
from schemas.jobs import GenerateJob
from workers.engine import CacheBatch, CacheShape, Delta, EmbedsShape, End, EngineDied, Load, Rows, Step
from workers.engines.rate import TokenRate

# It caches nothing; this is the size by which steering judges it.
CACHE = CacheShape(total_blocks=4_096, block_tokens=32)


class _Run(msgspec.Struct, eq=False):
    """One running job: how many tokens each of its choices has, and what its reader has not taken yet."""

    job: GenerateJob
    steps: asyncio.Queue[list[Step] | None]  # None: the engine died
    emitted: int = 0


class StubEngine:
    """One token of every choice each `step_s` seconds, until `max_tokens`; the first after `first_token_s`.

    One task with one timer drives all runs, as an engine's step does, so thousands of slow streams cost little.
    A prompt that contains `deadly_token_id` kills it, for tests; so does `die`.
    """

    name = "stub"
    cache = CACHE
    embeds: EmbedsShape | None = EmbedsShape()  # any rows, which it does not look at

    def __init__(
        self,
        slots: int,
        step_s: float,
        first_token_s: float | None = None,
        vocab_size: int = 49_152,
        deadly_token_id: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.slots = slots
        self._step_s = step_s
        self._first_token_s = step_s if first_token_s is None else first_token_s
        self._vocab_size = vocab_size
        self._deadly_token_id = deadly_token_id
        self._rate = TokenRate(clock or SystemClock())
        self._open: set[_Run] = set()
        self._due: list[tuple[float, int, _Run]] = []  # a heap; the number breaks ties in order of arrival
        self._order = itertools.count()
        self._changed = asyncio.Event()
        self._stepper: asyncio.Task[None] | None = None

    async def start(self, report: Callable[[str], None]) -> None:
        report("stub engine: no model is loaded")
        self._stepper = watched(self._step_forever(), "stub steps")
        self._stepper.add_done_callback(self._stopped)

    async def run(self, job: GenerateJob, rows: Sequence[Rows] = ()) -> AsyncGenerator[Step]:
        if self._stepper is None:
            raise EngineDied("the stub engine is not running")
        if self._deadly_token_id in job.prompt_ids:
            self.die()
        run = _Run(job, asyncio.Queue())
        self._open.add(run)
        self._schedule(run, self._first_token_s)
        try:
            while (steps := await self._next(run)) is not None:
                for step in steps:
                    yield step
                    if isinstance(step, End):
                        return
        finally:
            self._open.discard(run)
        raise EngineDied("the stub engine was told to die")

    def load(self) -> Load:
        return Load(
            running=len(self._open),
            kv_usage=min(1.0, len(self._open) / self.slots),
            tokens_per_s=self._rate.per_s(),
        )

    async def cache_events(self) -> AsyncGenerator[CacheBatch]:
        for nothing in list[CacheBatch]():
            yield nothing

    def die(self) -> None:
        """What a crash of a real engine does: every open run ends with EngineDied, until `restart`."""
        if self._stepper is not None:
            self._stepper.cancel()
            self._stepper = None
        self._due.clear()
        for run in self._open:
            run.steps.put_nowait(None)

    def _stopped(self, stepper: asyncio.Task[None]) -> None:
        """A fault of the steps is the death of the engine: whoever waits for one must hear of it."""
        if not stepper.cancelled() and stepper is self._stepper:
            self.die()

    async def restart(self, report: Callable[[str], None]) -> None:
        await self.close()
        await self.start(report)

    async def close(self) -> None:
        stepper = self._stepper
        self.die()
        if stepper is not None:
            await asyncio.wait([stepper])

    async def _next(self, run: _Run) -> list[Step] | None:
        if self._stepper is None and run.steps.empty():
            return None
        return await run.steps.get()

    def _schedule(self, run: _Run, after_s: float) -> None:
        due_at = asyncio.get_running_loop().time() + after_s
        heapq.heappush(self._due, (due_at, next(self._order), run))
        if self._due[0][2] is run:
            self._changed.set()

    async def _step_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            delay_s = self._due[0][0] - loop.time() if self._due else None
            if delay_s is None or delay_s > 0:
                with contextlib.suppress(TimeoutError):  # it is time for the next token
                    async with asyncio.timeout(delay_s):
                        await self._changed.wait()
                continue
            self._step_all_due(loop.time())

    def _step_all_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            due_at, order, run = heapq.heappop(self._due)
            if run not in self._open:
                continue
            run.steps.put_nowait(self._advance(run))
            if run.emitted < run.job.sampling.max_tokens:
                # From when it was due, not from now: the pace holds even if the loop was late.
                heapq.heappush(self._due, (due_at + self._step_s, order, run))

    def _advance(self, run: _Run) -> list[Step]:
        sampling, i = run.job.sampling, run.emitted
        run.emitted += 1
        self._rate.add(sampling.n)
        last = run.emitted >= sampling.max_tokens
        steps: list[Step] = [self._token(run.job, index, i, last) for index in range(sampling.n)]
        if last:
            steps.append(End(len(run.job.prompt_ids), run.emitted * sampling.n))
        return steps

    def _token(self, job: GenerateJob, index: int, i: int, last: bool) -> Delta:
        text, wanted = f" tok{i}", job.sampling.logprobs
        logprobs = None
        if wanted is not None:
            top = [Alternative(text, text.encode(), -float(rank)) for rank in range(wanted)]
            logprobs = [TokenLogprob(text, text.encode(), 0.0, top)]
        return Delta(index, text, [1 + i % (self._vocab_size - 1)], "length" if last else None, logprobs)
