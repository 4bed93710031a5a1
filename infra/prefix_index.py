"""Which worker holds which block, what every worker has to do, and reservations against both; on Redis.

Everything of one model lies under tri:{model}:ix: (the `index` rows of infra/keys.py):

| key            | type   | what                                                                                    |
|----------------|--------|-----------------------------------------------------------------------------------------|
| b:<block key>  | string | bit mask of worker slots that hold the block or will                                    |
| slots          | hash   | incarnation -> slot, of the living; a slot is one life's                                |
| dirty          | set    | slots of lives that are over, until their rows are cleared                              |
| w:<slot>       | hash   | counters (n in flight, u uncached tokens), gauges, learned speed, number of the last batch |
| held:<slot>    | set    | block keys its worker has reported: the reverse index                                   |
| spec:<slot>    | hash   | block key -> reservations that promise it                                               |
| fam:<slot>     | hash   | block key -> requests in flight under it, at depths that are powers of two              |
| res:<ticket>   | hash   | one reservation: what is to be given back, and to which life                            |
| due            | zset   | tickets by the time at which nobody will give them back any more                        |
| version        | string | number of reservations ever made                                                        |
| swept          | string | a short while: somebody has just looked for lives that are over                         |

Rows expire after hours without a write and are at most what the workers hold plus what is promised. A promise stands
until its request ends: until then the worker cannot evict those blocks.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Literal

import msgspec
from redis.asyncio import Redis

from infra import keys
from infra.ports import Incarnation
from infra.redis_client import Argument, Script
from infra.shared_trips import SharedTrips
from schemas.steering import Alternative, Ask, Choice, WorkerView

KEY_BYTES = 8
MAX_SLOTS = 64
CLEAN_ROWS = 512

Registered = Literal["registered", "full", "over"]
Fed = Literal["ok", "known", "gap", "over"]
Reserved = Literal["reserved", "look_again", "over"]


class CacheEvent(msgspec.Struct, frozen=True):
    """Blocks stored, removed, or all cleared."""

    kind: Literal["s", "r", "c"]
    block_keys: bytes = b""  # packed, KEY_BYTES each


class Look(msgspec.Struct, frozen=True):
    """What a decision outside Redis is made from. `version` tells whether others have decided since."""

    version: int
    views: list[WorkerView]  # in the order of the candidates; `worker` is an incarnation


def _source(*names: str) -> str:
    """Several files of infra/lua as one script: Lua on Redis has no modules."""
    folder = resources.files("infra").joinpath("lua")
    return "\n".join(folder.joinpath(f"{name}.lua").read_text() for name in names)


class _Script(Script):
    def __init__(self, client: Redis, *names: str) -> None:
        self._script = client.register_script(_source(*names))


class PrefixIndex:
    """The index of one model. Every method is harmless when repeated, and one round trip (a clear may take more).

    All raise Unavailable when Redis does not answer. `lag_s`: a worker whose events are older than this is judged
    by what was decided for it, until they come again.
    """

    def __init__(self, redis: Redis, model: str, lag_s: float = 5.0) -> None:
        self.prefix = keys.index(model)
        self._lag_ms = int(lag_s * 1000)
        self._decide = SharedTrips(
            redis, _source("index_rows", "index_views", "affinity", "least_load", "index_decide")
        )
        self._look = _Script(redis, "index_rows", "index_views", "index_look")
        self._reserve = _Script(redis, "index_rows", "index_reserve")
        self._release = _Script(redis, "index_rows", "index_release")
        self._register = _Script(redis, "index_rows", "index_register")
        self._retire = _Script(redis, "index_rows", "index_retire")
        self._alive = keys.alive(model, "")
        self._sweep = _Script(redis, "index_rows", "index_sweep")
        self._clean = _Script(redis, "index_rows", "index_clean")
        self._apply = _Script(redis, "index_rows", "index_apply")
        self._report = _Script(redis, "index_rows", "index_report")

    async def register(self, me: Incarnation, view: WorkerView) -> Registered:
        """Begin a life whose cache the index knows nothing of yet; `view` is what the worker tells of itself.

        full: all MAX_SLOTS are taken or still dirty; clean, then ask again. over: that name has a later life.
        """
        args: list[Argument] = [me.worker, str(me), view.total_blocks, MAX_SLOTS, *_told(view)]
        states: dict[int, Registered] = {1: "registered", 0: "full", -1: "over"}
        return states[await self._register([self.prefix], args)]

    async def retire(self, me: Incarnation) -> bool:
        """End a life: anybody may, who knows that its lease is gone. False if it had ended."""
        return bool(await self._retire([self.prefix], [str(me)]))

    async def sweep(self, pause_s: float = 1.0) -> int | None:
        """End all lives whose lease is gone; how many. None when somebody has done so within `pause_s`.

        A worker that was only slow to renew finds its life ended, registers again and tells all it holds.
        """
        ended = int(await self._sweep([self.prefix], [self._alive, int(pause_s * 1000)]))
        return None if ended < 0 else ended

    async def clean(self) -> int:
        """Clear up to CLEAN_ROWS rows of ended lives; returns about how many are left."""
        return int(await self._clean([self.prefix], [CLEAN_ROWS]))

    async def report(self, me: Incarnation, view: WorkerView) -> bool:
        """Memory, gauges and learned speed of a worker. False when that life is over."""
        return bool(await self._report([self.prefix], [str(me), *_told(view)]))

    async def apply(self, me: Incarnation, number: int, events: Sequence[CacheEvent]) -> Fed:
        """Enter a batch of events. Batches are numbered from 1; number 0 begins anew, with a clear first.

        An empty batch says that there is nothing new; send one when the feed is idle, or it counts as lagging.
        """
        heads = msgspec.msgpack.encode([(event.kind, len(event.block_keys)) for event in events])
        args: list[Argument] = [str(me), number, heads, b"".join(event.block_keys for event in events)]
        while (answer := await self._apply([self.prefix], args)) == b"more":
            pass
        fed: Fed = msgspec.convert(answer.decode(), Fed)
        return fed

    async def look(self, block_keys: Sequence[bytes], workers: Sequence[Incarnation]) -> Look:
        """The views of those candidates that are registered."""
        if not workers:
            return Look(0, [])
        question = {"workers": [str(each) for each in workers], "lag_ms": self._lag_ms}
        args = [msgspec.msgpack.encode(question), b"".join(block_keys)]
        version, views = msgspec.msgpack.decode(await self._look([self.prefix], args))
        return Look(version, [WorkerView(*view) for view in views])

    async def place(
        self,
        ticket: str,
        ask: Ask,
        block_keys: Sequence[bytes],
        workers: Sequence[Incarnation],
        params: Mapping[str, float],
        ttl_s: float,
    ) -> Choice | None:
        """Decide by affinity and reserve, atomically. None when no candidate is registered.

        `ticket` names the reservation: one per request and dispatch. It is given back by `release`, by the end of the
        worker's life, or after `ttl_s`.
        """
        return await self._placed(ticket, ask, block_keys, workers, ttl_s, {"params": params})

    async def place_least_loaded(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], workers: Sequence[Incarnation], ttl_s: float
    ) -> Choice | None:
        """As `place`, by the fewest requests in flight and then the fewest tokens to compute."""
        return await self._placed(ticket, ask, block_keys, workers, ttl_s, {})

    async def _placed(
        self,
        ticket: str,
        ask: Ask,
        block_keys: Sequence[bytes],
        workers: Sequence[Incarnation],
        ttl_s: float,
        rule: Mapping[str, Mapping[str, float]],
    ) -> Choice | None:
        if not workers:
            return None
        question = {
            "ticket": ticket,
            "workers": [str(each) for each in workers],
            "prompt_tokens": ask.prompt_tokens,
            "prompt_blocks": ask.prompt_blocks,
            "block_tokens": ask.block_tokens,
            "expected_output_tokens": ask.expected_output_tokens,
            "draw": ask.draw,
            "ttl_ms": int(ttl_s * 1000),
            "lag_ms": self._lag_ms,
            **rule,
        }
        args = [msgspec.msgpack.encode(question), b"".join(block_keys)]
        chosen, reason, seen = msgspec.msgpack.decode(await self._decide([self.prefix], args))
        if not chosen:
            return None
        worker, matched, cost_s = seen.pop(chosen - 1)
        return Choice(worker, reason, matched, cost_s, [Alternative(other, cost) for other, _, cost in seen])

    async def reserve(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], worker: str, version: int | None, ttl_s: float
    ) -> Reserved:
        """Reserve a choice made from `look`, unless somebody has reserved since.

        version None: whatever others have decided, for a choice that does not depend on it.
        """
        at = "" if version is None else version
        sizes = (ask.prompt_tokens, ask.block_tokens, int(ttl_s * 1000))
        args: list[Argument] = [ticket, worker, at, *sizes, b"".join(block_keys)]
        answer = await self._reserve([self.prefix], args)
        states: dict[int, Reserved] = {1: "reserved", 0: "look_again", -1: "over"}
        return states[answer]

    async def release(self, first_tokens: Sequence[str], ended: Sequence[str]) -> int:
        """Give back prefill load at the first token and the rest at the end; returns how many ended just now."""
        args = [msgspec.msgpack.encode(first_tokens), msgspec.msgpack.encode(ended)]
        return int(await self._release([self.prefix], args))


def _told(view: WorkerView) -> tuple[Argument, ...]:
    """What a worker tells of itself."""
    gauges = (view.unused_blocks, view.referenced_blocks, view.waiting, view.running)
    return *gauges, repr(view.prefill_tokens_per_s), repr(view.step_per_sequence_s), repr(view.step_base_s)
