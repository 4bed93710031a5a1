"""Records nobody can handle: sent to the dead-letter topic whole, so that an operator can mend and replay them."""

from typing import Literal

from infra.clock import Clock
from infra.ports import Blobs
from schemas.codec import encode
from schemas.jobs import DeadLetter
from schemas.refs import payload_ref
from topics.bus import Producer
from topics.names import DEAD_LETTERS, MAX_MESSAGE_BYTES
from topics.records import Record

Reason = Literal["empty", "undecodable", "unreadable"]


class DeadLetters:
    def __init__(self, producer: Producer, blobs: Blobs, clock: Clock) -> None:
        self._producer = producer
        self._blobs = blobs
        self._clock = clock

    async def send(self, record: Record, reason: Reason, detail: str) -> None:
        """Returns when the broker has it. Raises what Producer.send and Blobs.put raise."""
        letter = self._letter(record, reason, detail, inline=True)
        if record.value is not None and len(encode(letter)) > MAX_MESSAGE_BYTES:
            # A letter adds to the record it carries, so one that only just fitted no longer does.
            letter = self._letter(record, reason, detail, inline=False)
            await self._blobs.put(payload_ref(record.value, "application/octet-stream"), record.value)
        await self._producer.send(DEAD_LETTERS, letter)

    def _letter(self, record: Record, reason: Reason, detail: str, *, inline: bool) -> DeadLetter:
        stored = record.value is not None and not inline
        return DeadLetter(
            reason=reason,
            detail=detail,
            topic=record.at.topic,
            partition=record.at.partition,
            offset=record.at.offset,
            at=self._clock.now(),
            key=record.key,
            value=None if stored else record.value,
            value_ref=payload_ref(record.value, "application/octet-stream") if stored and record.value else None,
            headers=list(record.headers),
        )
