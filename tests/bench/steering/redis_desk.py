"""The fast mode's decisions on a real Redis, by the scripts and the steerer that gateways and workers use.

Only time is not real: what happens between two decisions is told just before the second one, in the order in which it
would be: cache events, then what is given back, then reports.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import msgspec

from infra.ports import Incarnation
from infra.prefix_index import KEY_BYTES, CacheEvent, PrefixIndex
from infra.redis_client import connect
from schemas.steering import Alternative, Ask, Choice, WorkerView
from topics.steering.policy import Policy
from topics.steering.steerer import Steerer

# No reservation expires and no feed is late: the clock of the server is not that of the workers.
FOREVER_S = 1e6
# They bound how long the server is busy with one batch, as in workers/feed.py. After the last decision of a rung
# everything that ends is told at once.
BATCH_KEYS, BATCH_TICKETS = 2_048, 32
T = TypeVar("T")


class RedisDesk:
    """One model of its own on the server, for one run."""

    def __init__(self, url: str, model: str, workers: int, policy: Policy, rng: random.Random) -> None:
        self._runner = asyncio.Runner()
        self._redis = connect(url)
        self.index = PrefixIndex(self._redis, model, lag_s=FOREVER_S)
        self._steerer = Steerer(self.index, policy, rng)
        self._lives = [Incarnation(str(slot), 0) for slot in range(workers)]
        self._numbers = [0] * workers
        self._events: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self._first_tokens: list[str] = []
        self._ended: list[str] = []

    def stored(self, slot: int, keys: Sequence[int]) -> None:
        self._events[slot] += [("s", key) for key in keys]

    def removed(self, slot: int, keys: Sequence[int]) -> None:
        self._events[slot] += [("r", key) for key in keys]

    def first_token(self, ticket: str) -> None:
        self._first_tokens.append(ticket)

    def end(self, ticket: str) -> None:
        self._ended.append(ticket)

    def report(self, views: Mapping[int, WorkerView]) -> None:
        async def tell() -> None:
            await self._tell()
            await asyncio.gather(*(self.index.report(self._lives[slot], view) for slot, view in views.items()))

        self._run(tell())

    def begin(self, slot: int, view: WorkerView) -> None:
        self._lives[slot] = Incarnation(str(slot), self._lives[slot].epoch + 1)
        self._numbers[slot] = 0
        self._events.pop(slot, None)  # what a killed worker had not told it never tells
        assert self._run(self.index.register(self._lives[slot], view)) == "registered"

    def retire(self, slot: int) -> None:
        async def end() -> None:
            await self._tell()
            await self.index.retire(self._lives[slot])
            while await self.index.clean():
                pass

        self._run(end())

    def place(self, ticket: str, ask: Ask, keys: Sequence[int], slots: Sequence[int]) -> Choice:
        async def place() -> Choice | None:
            await self._tell()
            return await self._steerer.place(
                ticket, ask, _bytes(keys), [self._lives[slot] for slot in slots], FOREVER_S
            )

        choice = self._run(place())
        assert choice is not None, "the index knows none of the workers"
        others = [Alternative(_slot(one.worker), one.cost) for one in choice.alternatives]
        return msgspec.structs.replace(choice, worker=_slot(choice.worker), alternatives=others)

    def look(self, keys: Sequence[int], slots: Sequence[int]) -> list[WorkerView]:
        async def look() -> list[WorkerView]:
            await self._tell()
            return (await self.index.look(_bytes(keys), [self._lives[slot] for slot in slots])).views

        return [msgspec.structs.replace(view, worker=_slot(view.worker)) for view in self._run(look())]

    def close(self) -> None:
        self._run(self._redis.aclose())
        self._runner.close()

    async def _tell(self) -> None:
        events, self._events = self._events, defaultdict(list)
        for slot, changes in events.items():
            for at in range(0, len(changes), BATCH_KEYS):
                await self._apply(slot, changes[at : at + BATCH_KEYS])
        firsts, self._first_tokens, ended, self._ended = self._first_tokens, [], self._ended, []
        for at in range(0, len(firsts), BATCH_TICKETS):
            await self.index.release(firsts[at : at + BATCH_TICKETS], [])
        for at in range(0, len(ended), BATCH_TICKETS):
            await self.index.release([], ended[at : at + BATCH_TICKETS])

    async def _apply(self, slot: int, changes: Sequence[tuple[str, int]]) -> None:
        kinds = groupby(changes, lambda change: change[0])
        batch = [
            CacheEvent("s" if kind == "s" else "r", b"".join(_bytes(key for _, key in run))) for kind, run in kinds
        ]
        fed = await self.index.apply(self._lives[slot], self._numbers[slot] + 1, batch)
        if fed == "ok":
            self._numbers[slot] += 1
        else:
            assert fed == "over", fed

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return self._runner.run(work)


def _bytes(keys: Iterable[int]) -> list[bytes]:
    return [key.to_bytes(KEY_BYTES, "big") for key in keys]


def _slot(incarnation: str) -> str:
    return incarnation.rpartition(":")[0]
