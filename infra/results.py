"""The result path on Redis, worker's side: who may run a request, and what it has told so far.

A request has a state hash (attempt, owner, last_seq, emitted, done, cancelled) and a replay stream whose entry ids are
the seq of the last event in each, so that "what comes after seq n" is one range. The rules live in infra/lua: one
script, one round trip per verb, and every verb is harmless when it is run again because its reply was lost.
"""

import itertools
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis

from infra import keys
from infra.metrics import Metrics
from infra.ports import AppendState, Claim, Incarnation, Outgoing, Wish
from infra.redis_client import Argument, Script, answered
from schemas import codec
from schemas.events import Cancelled, Event, EventBatch, Failed, Finished, Made, Terminal, Token
from schemas.jobs import Head
from schemas.signals import Cancel

STATES: dict[str, AppendState] = {"s": "stored", "c": "cancelled", "f": "fenced", "e": "ended"}
TERMINAL, EMITTED, MADE = 1, 2, 4  # flags of a row, as in append.lua

# Requests whose claim got no answer, the latest ones; each is at least as many bytes as its id.
MOST_UNANSWERED = 10_000

_packed = msgspec.msgpack.Encoder().encode


class RedisResults:
    """Results over one Redis client. One per process, shared by all that run there."""

    def __init__(self, client: Redis, metrics: Metrics) -> None:
        self._client = client
        self._claim = Script(client, "claim")
        self._requeue = Script(client, "requeue")
        self._append = Script(client, "append")
        self._end = Script(client, "end")
        self._cancel = Script(client, "cancel")
        self._metrics = metrics
        self._calls = map(f"{uuid.uuid4().hex}:{{}}".format, itertools.count())
        # Calls whose reply never came, by request: asked again, they must be recognised, or the request would look
        # busy for as long as this worker lives. Empty unless Redis is in trouble; some are never asked again.
        self._unanswered: OrderedDict[str, str] = OrderedDict()

    async def claim(self, head: Head, by: Incarnation, max_attempts: int) -> Claim:
        request_id = head.request_id
        call = self._unanswered.pop(request_id, None) or next(self._calls)
        expires_ms = int(head.deadline_at * 1_000) + keys.STATE_TTL_MS
        args: list[Argument] = [str(by), call, max_attempts, keys.alive(head.model, ""), expires_ms, keys.STATE_TTL_MS]
        try:
            names = self._keys(head.model, request_id)
            if head.parent:
                names.append(keys.request(head.model, head.parent))
            state, attempt, last_seq, emitted, made = await self._claim(names, args)
        except BaseException:
            self._unanswered[request_id] = call
            if len(self._unanswered) > MOST_UNANSWERED:
                self._unanswered.popitem(last=False)
            raise
        return Claim(state.decode(), attempt, last_seq, bool(emitted), made)

    async def requeue(self, head: Head, attempt: int, by: Incarnation) -> None:
        await self._requeue([keys.request(head.model, head.request_id)], [str(by), attempt])

    async def append(self, outgoing: Sequence[Outgoing]) -> list[AppendState]:
        if not outgoing:
            return []
        batches = [codec.encode(EventBatch(one.head.request_id, one.events)) for one in outgoing]
        rows = [_row(one, len(batch)) for one, batch in zip(outgoing, batches, strict=True)]
        model = outgoing[0].head.model
        prefixes = [keys.request(model, ""), keys.replay(model, "")]
        args: list[Argument] = [
            _packed(rows),
            b"".join(batches),
            keys.gateway(""),
            keys.REPLAY_MAX_ENTRIES,
            keys.STATE_TTL_MS,
        ]
        letters = (await self._append(prefixes, args)).decode()
        for letter in set(letters):
            self._metrics.appended(STATES[letter], letters.count(letter))
        return [STATES[letter] for letter in letters]

    async def wishes(self, heads: Sequence[Head]) -> list[Wish]:
        if not heads:
            return []
        pipeline = self._client.pipeline(transaction=False)
        for head in heads:
            pipeline.hmget(keys.request(head.model, head.request_id), "done", "cancelled")
            pipeline.hget(keys.request(head.model, head.parent), "cancelled")
        async with answered():
            answers = await pipeline.execute()
        return [_wish(own[0], own[1], parent) for own, parent in zip(answers[::2], answers[1::2], strict=True)]

    async def end(self, head: Head, event: Terminal) -> bool:
        before, after = _around_seq(head.request_id, event)
        args: list[Argument] = [before, after, keys.gateway(head.reply_to), keys.REPLAY_MAX_ENTRIES, keys.STATE_TTL_MS]
        return bool(await self._end(self._keys(head.model, head.request_id), args))

    async def cancel(self, model: str, request_id: str, reason: str) -> None:
        signal = codec.encode(Cancel(request_id, reason))
        args: list[Argument] = [reason, keys.signals(model), signal, keys.UNCLAIMED_TTL_MS]
        await self._cancel([keys.request(model, request_id)], args)

    def _keys(self, model: str, request_id: str) -> list[str]:
        return [keys.request(model, request_id), keys.replay(model, request_id)]


def _wish(done: bytes | None, cancelled: bytes | None, parent_cancelled: bytes | None) -> Wish:
    if done is not None:
        return "ended"
    return "wanted" if cancelled is None and parent_cancelled is None else "cancelled"


def _row(one: Outgoing, batch_bytes: int) -> tuple[str, int, int, int, int, int, str]:
    first, last = one.events[0], one.events[-1]
    flags = TERMINAL if isinstance(last, (Finished, Failed, Cancelled)) else 0
    if any(isinstance(event, Token) for event in one.events):
        flags |= EMITTED
    flags += MADE * sum(isinstance(event, Made) for event in one.events)
    return (one.head.request_id, first.attempt, first.seq, last.seq, flags, batch_bytes, one.head.reply_to)


def _around_seq(request_id: str, event: Event) -> tuple[bytes, bytes]:
    """The encoded batch of this one event without its attempt and seq, which only the script knows."""
    fields: list[Any] = msgspec.to_builtins(event, builtin_types=(bytes,))  # [tag, attempt, seq, ...], fewer than 16
    before = b"\x92" + _packed(request_id) + b"\x91" + bytes([0x90 + len(fields)]) + _packed(fields[0])
    return before, b"".join(_packed(field) for field in fields[3:])
