"""A record becomes a job here, or a dead letter: nothing undecodable gets any further, and nothing is dropped."""

from typing import Generic, TypeVar

from infra.ports import Blobs
from schemas.codec import Undecodable
from schemas.jobs import Job
from topics import claim_check
from topics.dead_letters import DeadLetters
from topics.records import Record

J = TypeVar("J", bound=Job)


class Opener(Generic[J]):
    """For a topic that carries jobs of one kind."""

    def __init__(self, kind: type[J], blobs: Blobs, letters: DeadLetters) -> None:
        self._kind = kind
        self._blobs = blobs
        self._letters = letters

    def at_hand(self, record: Record) -> J | None:
        """The job, if it can be had without any IO; None when `open` must be asked."""
        if record.fault or record.value is None:
            return None
        job = claim_check.inline(record.value)
        return job if isinstance(job, self._kind) else None

    async def open(self, record: Record) -> J | None:
        """The job; None when there is none in it and a dead letter has been sent instead.

        Raises:
            TriptychError, Unavailable: the object store or the broker cannot say now; nothing was done.
        """
        if record.fault:
            await self._letters.send(record, "unreadable", record.fault)
            return None
        if record.value is None:
            await self._letters.send(record, "empty", "a record without a value")
            return None
        try:
            job = await claim_check.unpack(record.value, self._blobs)
        except Undecodable as error:
            await self._letters.send(record, "undecodable", str(error))
            return None
        if not isinstance(job, self._kind):
            await self._letters.send(record, "misplaced", f"a {type(job).__name__} does not belong on this topic")
            return None
        return job
