"""Reads replay streams for followed requests that missed something: many in one round trip, the urgent ones first."""

import asyncio
import logging
from collections import Counter
from typing import Literal, TypeAlias

import msgspec
from redis.asyncio import Redis

from infra import keys
from infra.clock import Clock
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.patience import Outage
from infra.redis_client import answered
from infra.subscription import Followed
from schemas import codec
from schemas.errors import TriptychError

log = logging.getLogger(__name__)

# gap: a publication was missed.  lag: a slow reader has room again.  reconnect: the channel was down.
# attach: a client came back.  silence: nothing came for long; was the last publication lost?
CatchUpReason = Literal["gap", "lag", "reconnect", "attach", "silence"]
Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]

# Together they bound what one round decodes, and so for how long the event loop stands still (some milliseconds).
REQUESTS_PER_ROUND = 64
ENTRIES_PER_READ = 64


class StreamReader:
    """`want` may be called from anywhere in the loop's thread; `run` does the reading."""

    def __init__(self, client: Redis, metrics: Metrics, clock: Clock) -> None:
        self._client = client
        self._metrics = metrics
        self._clock = clock
        self._urgent: dict[Followed, CatchUpReason] = {}
        self._idle: dict[Followed, CatchUpReason] = {}
        self._wanted = asyncio.Event()
        self._outage = Outage("reading streams")

    def want(self, one: Followed, reason: CatchUpReason) -> None:
        queue = self._idle if reason == "silence" else self._urgent
        queue.setdefault(one, reason)
        self._wanted.set()

    def forget(self, one: Followed) -> None:
        self._urgent.pop(one, None)
        self._idle.pop(one, None)

    async def run(self) -> None:
        """Read what is wanted, for ever; a Redis that does not answer is asked again."""
        while True:
            await self._wanted.wait()
            if batch := self._take():
                await self._round(batch)
            else:
                self._wanted.clear()
            del batch  # waiting here for long must not keep anybody alive

    async def _round(self, batch: dict[Followed, CatchUpReason]) -> None:
        known = [(one.next_seq - 1, one.seen) for one in batch]
        try:
            replies = await self._read(list(batch))
        except Unavailable as error:
            self._urgent |= batch
            await self._outage.failed(error)
            return
        self._outage.over()
        for one, (had, seen), entries in zip(batch, known, replies, strict=True):
            self._deliver(one, had, seen, entries)
        for reason, count in Counter(batch.values()).items():
            self._metrics.caught_up(reason, count)

    def _take(self) -> dict[Followed, CatchUpReason]:
        """The next ones to read; who has no room now asks again when it has."""
        batch: dict[Followed, CatchUpReason] = {}
        for queue in (self._urgent, self._idle):
            while queue and len(batch) < REQUESTS_PER_ROUND:
                one = next(iter(queue))
                reason = queue.pop(one)
                if one.ended:
                    continue
                if one.full:
                    one.may_hold_more = True
                elif one.behind or reason not in ("gap", "lag"):
                    batch[one] = reason
        return batch

    async def _read(self, batch: list[Followed]) -> list[list[Entry]]:
        async with answered(), self._client.pipeline(transaction=False) as pipe:
            for one in batch:
                # From the last event that it has, not after it: an empty answer then says that the stream is gone.
                start = f"{one.next_seq - 1}-0"
                pipe.xrange(keys.replay(one.model, one.request_id), min=start, count=ENTRIES_PER_READ)
            return await pipe.execute()

    def _deliver(self, one: Followed, had: int, seen: int, entries: list[Entry]) -> None:
        """`had`, `seen`: the last seq it had taken, and the last it knew of, when the stream was asked."""
        one.heard_at = self._clock.monotonic()
        one.may_hold_more = len(entries) == ENTRIES_PER_READ
        try:
            batches = [codec.decode_batch(fields[b"b"]) for _, fields in entries]
        except msgspec.MsgspecError as error:
            log.error("the stream of %s holds what nobody understands: %s", one.request_id, error)
            one.fail(TriptychError("internal", "the stored answer cannot be read"))
            return
        trimmed = bool(batches) and batches[0].events[0].seq > one.next_seq
        vanished = not batches and had > 0
        if trimmed or vanished:
            one.fail(_lost(had))
        for batch in batches:
            one.feed(batch.events)
        # Published before we asked, and yet not in the stream: Redis has come back with an older state.
        if one.next_seq <= seen and not one.may_hold_more:
            one.fail(_lost(had))
        if one.behind:
            self.want(one, "gap")


def _lost(last_seq: int) -> TriptychError:
    return TriptychError("replay_lost", f"what comes after event {last_seq} of this answer is no longer kept")
