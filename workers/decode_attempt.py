"""One attempt at one picture or speech, from claim to last word."""

import asyncio
import secrets
from contextlib import aclosing
from typing import Literal

from infra.clock import Clock
from infra.hashing import sha256_of
from infra.metrics import Metrics
from infra.ports import Blobs, Claim, Lives, Results
from schemas.events import Event, Finished, Made, Progress, Terminal, Usage
from schemas.jobs import DecodeJob
from schemas.refs import BlobRef
from workers import retry
from workers.decode_step import Going, Maker, Product
from workers.failures import failure
from workers.outbox import Account, Outbox
from workers.running import Running, until_answered

PROGRESS_S = 0.2
# Who has the key can read the object through a signed URL: nobody may guess one.
KEY_BYTES = 24

Outcome = Literal["ended", "busy"]


class DecodeAttempts:
    """Makes attempts for one worker."""

    def __init__(
        self,
        maker: Maker,
        lives: Lives,
        results: Results,
        blobs: Blobs,
        outbox: Outbox,
        metrics: Metrics,
        clock: Clock,
        max_attempts: int,
    ) -> None:
        self._maker = maker
        self._lives = lives
        self._results = results
        self._blobs = blobs
        self._outbox = outbox
        self._metrics = metrics
        self._clock = clock
        self._max_attempts = max_attempts

    async def make(self, job: DecodeJob, running: Running) -> Outcome:
        """Claim the request and, if it is ours, run it to its end. "ended" also when it is given back."""
        me = await until_answered(lambda: self._lives.of(job.head.model))
        claim = await until_answered(lambda: self._results.claim(job.head, me, self._max_attempts))
        match retry.on_claim(job.head, claim, self._clock.now()):
            case "drop":
                return "ended"
            case "wait":
                return "busy"
            case "run":
                await self._run(job, claim, running)
            case terminal:
                await self._last_word(Account(job.head, claim.attempt, claim.last_seq + 1, lambda _: None), terminal)
        return "ended"

    async def _run(self, job: DecodeJob, claim: Claim, running: Running) -> None:
        account = Account(job.head, claim.attempt, claim.last_seq, running.heed)
        began_at = self._clock.monotonic()
        self._metrics.decode_queued_for(self._maker.kind, self._clock.now() - job.head.created_at)
        running.begun = True
        try:
            last = await self._events(job, claim, account, running)
        finally:
            running.finish()
        self._metrics.decoded_in(self._maker.kind, self._clock.monotonic() - began_at)
        if last == "left":
            await self._give_back(job, account)
        elif last != "fenced":
            await self._last_word(account, last)

    async def _events(
        self, job: DecodeJob, claim: Claim, account: Account, running: Running
    ) -> Terminal | Literal["fenced", "left"]:
        """Send everything but the last word, and return that; or how else this attempt ended."""
        if running.cause is not None:  # while it waited
            return _stopped(account, running)
        try:
            async with asyncio.timeout(job.head.deadline_at - self._clock.now()):
                await self._make(job, claim, account)
                me = await self._lives.of(job.head.model)
            return Finished(account.attempt, account.next_seq(), Usage(len(job.codes), 0), me.worker)
        except asyncio.CancelledError:
            if not running.uncancel():
                raise
            return _stopped(account, running)
        except Exception as error:  # noqa: BLE001 - failure logs what nobody foresaw
            return failure(account, error, "decoded", "decoder_failed", "decoder")

    async def _make(self, job: DecodeJob, claim: Claim, account: Account) -> None:
        number, folder, told_at = claim.made, f"outputs/{secrets.token_hex(KEY_BYTES)}", float("-inf")
        # Closing the maker, on any way out, gives the job up.
        async with aclosing(self._maker.make(job, skip=claim.made)) as steps:
            async for step in steps:
                match step:
                    case Going():
                        if (now := self._clock.monotonic()) - told_at >= PROGRESS_S:
                            told_at = now
                            going = Progress(account.attempt, account.next_seq(), step.done, step.total)
                            await self._outbox.put(account, going)
                    case Product():
                        ref = await self._store(f"{folder}/{number}.{step.suffix}", step)
                        await self._outbox.put(account, self._made(account, ref, number, step))
                        number += 1

    async def _store(self, key: str, product: Product) -> BlobRef:
        digest = await sha256_of(product.data)
        ref = BlobRef(key, digest, len(product.data), product.media_type)
        await until_answered(lambda: self._blobs.put(ref, product.data))
        return ref

    def _made(self, account: Account, ref: BlobRef, number: int, product: Product) -> Made:
        return Made(
            account.attempt,
            account.next_seq(),
            self._maker.kind,
            ref,
            number,
            product.duration_s,
            product.width,
            product.height,
            product.text,
        )

    async def _give_back(self, job: DecodeJob, account: Account) -> None:
        me = await self._lives.of(job.head.model)
        await account.settled()
        await until_answered(lambda: self._results.requeue(job.head, account.attempt, me))

    async def _last_word(self, account: Account, event: Event) -> None:
        await self._outbox.last_word(account, event)
        self._metrics.decode_ended(self._maker.kind, type(event).__name__.lower())


def _stopped(account: Account, running: Running) -> Terminal | Literal["fenced", "left"]:
    if running.cause == "cancelled":
        return account.cancelled(running.reason)
    if account.broken is not None:
        raise account.broken
    return "fenced" if running.cause == "fenced" else "left"
