"""One attempt at one request, from claim to last word."""

import asyncio
from contextlib import aclosing
from typing import Literal

import msgspec

from infra.clock import Clock
from infra.metrics import Metrics
from infra.ports import Claim, Incarnation, Results
from schemas.events import Event, Failed, Finished, Steered, Token
from schemas.jobs import GenerateJob
from topics.bus import Delivery, Producer
from workers import llm, retry
from workers.assembly import Assembly
from workers.engine import Engine, EngineDied
from workers.engine_keeper import EngineKeeper
from workers.failures import failure
from workers.outbox import Account, Outbox
from workers.outputs import Piece
from workers.part_sender import PartSender
from workers.reservations import Reservations
from workers.running import Running, until_answered

Outcome = Literal["ended", "again", "busy", "left"]


class Attempts:
    """Makes attempts for one worker; knows those that run, so that they can be cancelled."""

    def __init__(
        self,
        me: Incarnation,
        results: Results,
        assembly: Assembly,
        engine: Engine,
        keeper: EngineKeeper,
        outbox: Outbox,
        producer: Producer,
        reservations: Reservations,
        metrics: Metrics,
        clock: Clock,
        max_attempts: int,
    ) -> None:
        self._me = me
        self._results = results
        self._assembly = assembly
        self._engine = engine
        self._keeper = keeper
        self._outbox = outbox
        self._producer = producer
        self._reservations = reservations
        self._metrics = metrics
        self._clock = clock
        self._max_attempts = max_attempts
        self._running: dict[str, Running] = {}

    def cancel(self, request_id: str, reason: str) -> None:
        """Stop it if it runs here; a queued one is caught by its claim."""
        if running := self._running.get(request_id):
            running.stop("cancelled", reason)

    def cut_short(self) -> None:
        """The drain's time is over: stop all, giving back what can go again."""
        for running in list(self._running.values()):
            running.stop("cut")

    async def give_up(self, job: GenerateJob) -> None:
        """An attempt has raised what it must not: end the request, whichever attempt it is at."""
        self._reservations.ended(job)
        failed = Failed(0, 0, "internal", "the worker failed on this request")
        await until_answered(lambda: self._results.end(job.head, failed))
        self._metrics.job_ended(job.head.model, "failed")

    async def make(self, delivery: Delivery) -> Outcome:
        """Claim the request and, if it is ours, run it to its end."""
        outcome = await self._make(delivery)
        if outcome in ("ended", "left"):
            self._reservations.ended(delivery.job)
        return outcome

    async def _make(self, delivery: Delivery) -> Outcome:
        job = delivery.job
        if job.head.request_id in self._running:  # read twice: Redis may have forgotten who runs it, we have not
            return "busy"
        claim = await self._claim(job)
        match retry.on_claim(job.head, claim, self._clock.now()):
            case "drop":
                return "ended"
            case "wait":
                return "busy"
            case "run":
                return await self._run(delivery, claim)
            case terminal:
                account = Account(job.head, claim.attempt, claim.last_seq, lambda _: None)
                await self._tell_decision(job, account)
                return await self._last_word(account, msgspec.structs.replace(terminal, seq=account.next_seq()))

    async def _claim(self, job: GenerateJob) -> Claim:
        return await until_answered(lambda: self._results.claim(job.head, self._me, self._max_attempts))

    async def _run(self, delivery: Delivery, claim: Claim) -> Outcome:
        job, running = delivery.job, Running()
        self._reservations.began(job)
        account = Account(job.head, claim.attempt, claim.last_seq, running.heed)
        self._running[job.head.request_id] = running
        try:
            last = await self._events(delivery, claim, account, running)
        finally:
            running.finish()
            del self._running[job.head.request_id]
        if last == "fenced":
            return "ended"
        if isinstance(last, str):
            return await self._go_again(job, account, last)
        if isinstance(last, Finished) and job.placement:
            predicted, actual = job.placement.predicted_tokens, last.usage.cached
            self._metrics.cache_hit(job.head.model, predicted=predicted, actual=actual)
        return await self._last_word(account, last)

    async def _events(
        self, delivery: Delivery, claim: Claim, account: Account, running: Running
    ) -> Event | Literal["fenced", "again", "left"]:
        """Send everything but the last word, and return that; or how else this attempt ended."""
        job, now = delivery.job, self._clock.now()
        queue_s = max(0.0, now - job.head.created_at)  # clocks differ
        self._metrics.queued_for(job.head.model, queue_s)
        events = llm.handle(
            job, claim, account, self._assembly, self._engine, self._me.worker, delivery.at.partition, queue_s
        )
        try:
            # Closing the handler belongs inside the try: a stop may arrive while the engine is still aborting.
            async with (
                asyncio.timeout(job.head.deadline_at - now),
                PartSender(delivery, account, self._outbox, self._producer, self._clock) as parts,
                aclosing(events),
            ):
                await self._tell_decision(job, account)
                async for event in events:
                    if isinstance(event, Finished):
                        await parts.sent()
                        return msgspec.structs.replace(event, seq=account.next_seq())
                    await (parts.ask(event) if isinstance(event, Piece) else self._send(job, account, event))
            return account.failed("engine_no_end", "the engine stopped without an end")
        except EngineDied:
            self._keeper.died()
            if retry.can_go_again(job.head, claim, account):
                return "again"
            return account.failed("engine_died", "the engine died in mid-stream; please try again")
        except asyncio.CancelledError:
            if not running.uncancel():
                raise
            return self._stopped(job, claim, account, running)
        except Exception as error:  # noqa: BLE001 - failure logs what nobody foresaw
            return failure(account, error, "generated", "internal", "worker")

    async def _tell_decision(self, job: GenerateJob, account: Account) -> None:
        """Of the copy that was claimed, so that of many decisions about a request the one that counts is told."""
        if job.decision is not None:
            await self._outbox.put(account, Steered(account.attempt, account.next_seq(), job.decision))

    async def _send(self, job: GenerateJob, account: Account, event: Event) -> None:
        if isinstance(event, Token):
            self._reservations.emitted(job)
        await self._outbox.put(account, event)

    def _stopped(
        self, job: GenerateJob, claim: Claim, account: Account, running: Running
    ) -> Event | Literal["fenced", "left"]:
        if running.cause == "cancelled":
            return account.cancelled(running.reason)
        if running.cause == "fenced":
            return "fenced"
        if account.broken is not None:
            raise account.broken
        if retry.can_go_again(job.head, claim, account):
            return "left"
        return account.failed("worker_lost", "the worker was stopped in mid-stream; please try again")

    async def _go_again(self, job: GenerateJob, account: Account, how: str) -> Outcome:
        await account.settled()
        await until_answered(lambda: self._results.requeue(job.head, account.attempt, self._me))
        return "left" if how == "left" else "again"

    async def _last_word(self, account: Account, event: Event) -> Outcome:
        await self._outbox.last_word(account, event)
        self._metrics.job_ended(account.head.model, type(event).__name__.lower())
        return "ended"
