"""Records nobody can handle: kept whole, on the dead-letter topic, so that an operator can mend and replay them."""

import asyncio
import logging
import traceback
from typing import Literal

import msgspec

from infra.clock import Clock
from infra.faults import Missing, Refused
from infra.hashing import content_ref
from infra.metrics import Metrics
from infra.patience import patiently
from infra.ports import Blobs
from schemas.codec import encode
from schemas.jobs import DeadLetter
from topics.brake import Bound, Brake
from topics.bus import Producer
from topics.names import DEAD_LETTERS, MAX_MESSAGE_BYTES
from topics.records import Record

log = logging.getLogger(__name__)

DETAIL_CHARACTERS = 2_000
FOLDER = "letters"

# empty: no value.  undecodable: no message of ours.  misplaced: a job of another topic or pool.  invalid: a job that
# contradicts itself or its bounds.  unreadable: its bytes, or the object it names, cannot be had.  failed: it could be
# neither run nor ended.
Reason = Literal["empty", "undecodable", "misplaced", "invalid", "unreadable", "failed"]


class DeadLetters:
    """One per process; each partition has a brake of its own."""

    def __init__(
        self, producer: Producer, blobs: Blobs, metrics: Metrics, clock: Clock, bound: Bound | None = None
    ) -> None:
        self._producer = producer
        self._blobs = blobs
        self._metrics = metrics
        self._clock = clock
        self._bound = bound or Bound()
        self._brakes: dict[tuple[str, int], Brake] = {}
        self._braked = 0
        metrics.count_braked_by(lambda: float(self._braked))

    async def send(self, record: Record, reason: Reason, detail: str) -> None:
        """Returns when it is kept: on the topic, or, when that is missing or refused, in the object store.

        Waits for as long as neither can be, and while its partition's brake holds it. Bound it by the life of whoever
        has read the record: without an answer its offset is not committed.
        """
        await self._brake(record)
        letter = DeadLetter(
            reason=reason,
            detail=_sendable(detail[:DETAIL_CHARACTERS]),
            topic=record.at.topic,
            partition=record.at.partition,
            offset=record.at.offset,
            at=self._clock.now(),
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
        log.warning("%s is set aside in %s: %s (%s)", record.at, DEAD_LETTERS, letter.reason, letter.detail)
        await patiently(lambda: self._keep(letter), f"dead letter of {record.at}")
        self._metrics.dead_letter(reason)

    async def _brake(self, record: Record) -> None:
        place = (record.at.topic, record.at.partition)
        brake = self._brakes.setdefault(place, Brake(self._bound, self._clock.monotonic()))
        if not (wait_s := brake.wait_s(self._clock.monotonic())):
            return
        log.error(
            "%s/%d makes dead letters faster than %g a second after the first %d: it waits %.0f s before %s. Is a "
            "setting wrong, or a version too old?",
            *place,
            self._bound.per_s,
            self._bound.burst,
            wait_s,
            record.at,
        )
        self._braked += 1
        try:
            await asyncio.sleep(wait_s)
        finally:
            self._braked -= 1

    async def _keep(self, letter: DeadLetter) -> None:
        try:
            await self._producer.send(DEAD_LETTERS, await self._fitting(letter))
        except (Missing, Refused) as error:
            data = encode(letter)
            ref = await content_ref(data, "application/msgpack", FOLDER)
            await self._blobs.put(ref, data)
            log.error(
                "%s cannot be written (%s): the letter is in the object store, at %s", DEAD_LETTERS, error, ref.key
            )

    async def _fitting(self, letter: DeadLetter) -> DeadLetter:
        """A letter adds to the record it carries, so one that only just fitted no longer does."""
        if letter.value and _too_big(letter):
            ref = await content_ref(letter.value, "application/octet-stream", FOLDER)
            await self._blobs.put(ref, letter.value)
            letter = msgspec.structs.replace(letter, value=None, value_ref=ref)
        if _too_big(letter):
            detail = f"{letter.detail[:200]}; key and headers left out, too big"
            letter = msgspec.structs.replace(letter, detail=detail, key=None, headers=[])
        return letter


def story(error: BaseException) -> str:
    """What went wrong and where: its last frames, for whoever has to mend it."""
    return "".join(traceback.format_exception(error, limit=-4)).strip()[-DETAIL_CHARACTERS:]


def _too_big(letter: DeadLetter) -> bool:
    return len(encode(letter)) > MAX_MESSAGE_BYTES


def _sendable(text: str) -> str:
    """A record may have put anything into an error's words."""
    return text.encode(errors="backslashreplace").decode()
