"""A record becomes a job here, or a dead letter: nothing that is wrong gets any further, and nothing is dropped."""

import asyncio
import logging
from typing import Generic, TypeVar

from infra.clock import Clock
from infra.faults import Refused
from infra.patience import patiently
from infra.ports import Blobs
from schemas.codec import Undecodable
from schemas.jobs import Job
from topics import claim_check
from topics.checks import Belongs, contradiction
from topics.dead_letters import DeadLetters, Reason, story
from topics.records import Record

log = logging.getLogger(__name__)

J = TypeVar("J", bound=Job)

# A store that refuses is one with wrong credentials, which somebody may mend; or refuses this one object only.
REFUSED_TRIES, REFUSED_PAUSE_S = 6, 5.0


class _Wrong(Exception):
    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Opener(Generic[J]):
    """For a topic that carries jobs of one kind."""

    def __init__(self, belongs: Belongs[J], blobs: Blobs, letters: DeadLetters, clock: Clock) -> None:
        self._belongs = belongs
        self._blobs = blobs
        self._letters = letters
        self._clock = clock

    def at_hand(self, record: Record) -> J | None:
        """The job, if it can be had without any IO; None when `open` must be asked."""
        if record.fault or record.value is None:
            return None
        job = claim_check.inline(record.value)
        try:
            return None if job is None else self._accepted(job)
        except _Wrong:
            return None

    async def open(self, record: Record) -> J | None:
        """The job; None when there is none in it and a dead letter is kept instead.

        Waits while store and broker cannot say: bound it by the life of whoever has read the record. Raises nothing,
        whatever the record holds.
        """
        try:
            return self._accepted(await self._read(record))
        except _Wrong as wrong:
            await self._keep(record, wrong.reason, str(wrong))
        except Exception as error:
            log.exception("%s: opening it failed", record.at)
            await self.set_aside(record, error)
        return None

    async def set_aside(self, record: Record, error: BaseException) -> None:
        """Keep it as a dead letter: it could be neither run nor ended. Waits, and raises nothing, as `open`."""
        await self._keep(record, "failed", story(error))

    async def _keep(self, record: Record, reason: Reason, detail: str) -> None:
        try:
            await self._letters.send(record, reason, detail)
        except Exception:
            # A bug of ours; the record stays in the topic for as long as that keeps it. It must not stop the others.
            log.critical("%s (%s) could not even be set aside, and is passed over", record.at, reason, exc_info=True)

    async def _read(self, record: Record) -> Job:
        if record.fault:
            raise _Wrong("unreadable", record.fault)
        value = record.value
        if value is None:
            raise _Wrong("empty", "a record without a value")
        try:
            return await self._unpacked(record, value)
        except Undecodable as error:
            raise _Wrong("undecodable", str(error)) from error

    async def _unpacked(self, record: Record, value: bytes) -> Job:
        tries = 0
        while True:
            try:
                return await patiently(lambda: claim_check.unpack(value, self._blobs), f"payload of {record.at}")
            except Refused as error:
                tries += 1
                log.error("%s: the object store refuses its payload: %s", record.at, error)
                if tries == REFUSED_TRIES:
                    raise _Wrong("unreadable", f"the object store refuses its payload: {error}") from error
            await asyncio.sleep(REFUSED_PAUSE_S)

    def _accepted(self, job: Job) -> J:
        if wrong := self._belongs.misplaced(job):
            raise _Wrong("misplaced", wrong)
        if wrong := contradiction(job, self._clock.now()):
            raise _Wrong("invalid", wrong)
        if not isinstance(job, self._belongs.kind):
            raise AssertionError("what belongs on the topic is of its kind")
        return job
