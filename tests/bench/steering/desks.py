"""Where a gateway of the fast mode has its decisions made: on the twin of the index in this process, or on Redis."""

import random
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from schemas.steering import Ask, Choice, WorkerView
from tests.bench.steering.local_index import LocalIndex
from topics.steering.approximate import OwnDecisions
from topics.steering.policy import Policy


class Desk(Protocol):
    """Decides and reserves, from what workers tell it. Workers are slots; choices and views name them by number."""

    def stored(self, slot: int, keys: Sequence[int]) -> None: ...

    def removed(self, slot: int, keys: Sequence[int]) -> None: ...

    def report(self, views: Mapping[int, WorkerView]) -> None:
        """Gauges, memory and learned speed, by slot."""
        ...

    def place(self, ticket: str, ask: Ask, keys: Sequence[int], slots: Sequence[int]) -> Choice:
        """`ask` gets its turn and its draw here."""
        ...

    def look(self, keys: Sequence[int], slots: Sequence[int]) -> list[WorkerView]: ...

    def first_token(self, ticket: str) -> None: ...

    def end(self, ticket: str) -> None: ...

    def retire(self, slot: int) -> None:
        """Its life is over."""
        ...

    def begin(self, slot: int, view: WorkerView) -> None:
        """A life begins there, with an empty cache."""
        ...

    def close(self) -> None: ...


class LocalDesk:
    """On the twin. Looks, decides and reserves as `topics.steering.steerer.Steerer` does, turns and draws included."""

    def __init__(self, workers: int, policy: Policy, rng: random.Random) -> None:
        self.index = LocalIndex(workers)
        self.stored, self.removed = self.index.stored, self.index.removed
        self.look, self.first_token = self.index.look, self.index.first_token
        self.end = self.index.end
        self._policy = policy
        self._rng = rng
        self._turn = rng.randrange(1 << 20)
        self._own: OwnDecisions | None = None

    def report(self, views: Mapping[int, WorkerView]) -> None:
        for slot, view in views.items():
            self.index.report(slot, view)

    def begin(self, slot: int, view: WorkerView) -> None:
        self.index.report(slot, view)
        if self._policy.approximate and self._own is None:
            self._own = OwnDecisions(view.total_blocks)

    def place(self, ticket: str, ask: Ask, keys: Sequence[int], slots: Sequence[int]) -> Choice:
        self._turn += 1
        asked = msgspec.structs.replace(ask, turn=self._turn, draw=self._rng.random())
        depths = None
        if self._own:
            depths = [self._own.matched_blocks(str(slot), keys) for slot in range(self.index.workers)]
        choice = self._policy.decide(asked, self.index.look(keys, slots, depths))
        self.index.reserve(ticket, asked, keys, int(choice.worker), choice.matched_blocks)
        if self._own:
            self._own.record(choice.worker, keys)
        return choice

    def retire(self, slot: int) -> None:
        self.index.retire(slot)
        if self._own:
            self._own.forget(str(slot))

    def close(self) -> None:
        pass
