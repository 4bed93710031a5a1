"""The work of a decoder pool: each job is a request of its own and ends exactly once (promise P1)."""

import asyncio

import msgspec

from infra.ports import Results
from schemas.events import Failed
from schemas.jobs import DecodeJob
from topics.headers import Headers
from workers.decode_attempt import DecodeAttempts, Outcome
from workers.running import Running

# A request that a living worker runs is asked for again at this pace: its end, or its worker's, is then noticed.
BUSY_POLL_S = 0.5


class _Open(msgspec.Struct, eq=False):
    """A job that is here, waiting or running."""

    job: DecodeJob
    running: Running
    over: asyncio.Event


class DecodeWork:
    """Implements topics.group_jobs.Work.

    At most `slots` jobs are claimed at a time. The others wait here, where a cancellation reaches them; so do those
    that wait for another worker's attempt.
    """

    def __init__(self, attempts: DecodeAttempts, results: Results, slots: int) -> None:
        self._attempts = attempts
        self._results = results
        self._slots = asyncio.Semaphore(slots)
        self._open: dict[str, _Open] = {}
        self._draining = False

    async def handle(self, job: DecodeJob, headers: Headers | None = None) -> None:
        """Try until the request has ended, here or elsewhere; or this worker drains, which leaves it to others.

        No job comes of it that could bear the headers.
        """
        while twin := self._open.get(job.head.request_id):  # it has been sent twice
            await twin.over.wait()
        one = self._open[job.head.request_id] = _Open(job, Running(), asyncio.Event())
        try:
            await self._until_ended(job, one.running)
        finally:
            one.running.finish()
            del self._open[job.head.request_id]
            one.over.set()

    async def give_up(self, job: DecodeJob, error: BaseException) -> None:
        await self._results.end(job.head, Failed(0, 0, "internal", "the decoder failed on this request"))

    def cancel(self, request_id: str, reason: str) -> None:
        """Stop this request, and what is a part of it, if it is here."""
        for one in list(self._open.values()):
            if request_id in (one.job.head.request_id, one.job.head.parent):
                one.running.stop("cancelled", reason)

    def drain(self) -> None:
        """Begin nothing more. To be called when the pool has been left: what waits here is then others' to do."""
        self._draining = True
        for one in list(self._open.values()):
            if not one.running.begun:
                one.running.stop("cut")

    def cut_short(self) -> None:
        """The drain's time is over: give back what runs, for others to do again."""
        for one in list(self._open.values()):
            one.running.stop("cut")

    async def _until_ended(self, job: DecodeJob, running: Running) -> None:
        while not self._draining:
            try:
                if await self._try(job, running) == "ended":
                    return
                await asyncio.sleep(BUSY_POLL_S)
            except asyncio.CancelledError:
                if not running.uncancel():
                    raise

    async def _try(self, job: DecodeJob, running: Running) -> Outcome:
        if running.cause == "cancelled":  # while it waited: the claim will say so, and it needs no slot to end
            return await self._attempts.make(job, running)
        async with self._slots:
            return "ended" if self._draining else await self._attempts.make(job, running)
