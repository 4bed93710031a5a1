"""Records nobody can handle: sent to the dead-letter topic whole, so that an operator can mend and replay them."""

import logging
from typing import Literal

import msgspec

from infra.clock import Clock
from infra.metrics import Metrics
from infra.ports import Blobs
from schemas.codec import encode
from schemas.jobs import DeadLetter
from schemas.refs import payload_ref
from topics.bus import Producer
from topics.names import DEAD_LETTERS, MAX_MESSAGE_BYTES
from topics.records import Record

log = logging.getLogger(__name__)

DETAIL_CHARACTERS = 500

Reason = Literal["empty", "misplaced", "undecodable", "unreadable"]


class DeadLetters:
    def __init__(self, producer: Producer, blobs: Blobs, metrics: Metrics, clock: Clock) -> None:
        self._producer = producer
        self._blobs = blobs
        self._metrics = metrics
        self._clock = clock

    async def send(self, record: Record, reason: Reason, detail: str) -> None:
        """Returns when the broker has it. Raises what Producer.send and Blobs.put raise."""
        letter = DeadLetter(
            reason=reason,
            detail=detail[:DETAIL_CHARACTERS],
            topic=record.at.topic,
            partition=record.at.partition,
            offset=record.at.offset,
            at=self._clock.now(),
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
        log.warning("%s, set aside in %s: %s (%s)", record.at, DEAD_LETTERS, letter.reason, letter.detail)
        await self._producer.send(DEAD_LETTERS, await self._fitting(letter))
        self._metrics.dead_letter(reason)

    async def _fitting(self, letter: DeadLetter) -> DeadLetter:
        """A letter adds to the record it carries, so one that only just fitted no longer does."""
        if letter.value and _too_big(letter):
            ref = payload_ref(letter.value, "application/octet-stream", folder="letters")
            await self._blobs.put(ref, letter.value)
            letter = msgspec.structs.replace(letter, value=None, value_ref=ref)
        if _too_big(letter):
            detail = f"{letter.detail}; key and headers left out, too big"
            letter = msgspec.structs.replace(letter, detail=detail, key=None, headers=[])
        return letter


def _too_big(letter: DeadLetter) -> bool:
    return len(encode(letter)) > MAX_MESSAGE_BYTES
