"""The way out: collects what all running jobs emit and stores it in one round trip per engine step.

While one append is on its way, the next step's events gather; so the slower Redis is, the larger the batches get.
"""

import asyncio
from collections.abc import Callable

from infra.patience import patiently
from infra.ports import AppendState, Outgoing, Results
from schemas.errors import Code
from schemas.events import Cancelled, Event, Failed
from schemas.jobs import Head

MAX_PENDING_EVENTS = 20_000


class Account:
    """One attempt's line to the client: numbers its events and learns what became of them."""

    def __init__(self, head: Head, attempt: int, last_seq: int, on_state: Callable[[AppendState], None]) -> None:
        self.head = head
        self.attempt = attempt
        self.seq = last_seq
        self.emitted_tokens = False
        self.refused = False  # another attempt owns the request, or it has ended: nothing more of this one counts
        self._on_state = on_state
        self._sent = 0
        self._answered = 0
        self._progress = asyncio.Event()

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def failed(self, code: Code, message: str, param: str | None = None) -> Failed:
        return Failed(self.attempt, self.next_seq(), code, message, param)

    def cancelled(self, reason: str) -> Cancelled:
        return Cancelled(self.attempt, self.next_seq(), reason)

    def sent(self, count: int) -> None:
        self._sent += count

    def answered(self, state: AppendState, count: int) -> None:
        self._answered += count
        self.refused |= state in ("fenced", "ended")
        self._progress.set()
        if state != "stored":
            self._on_state(state)

    async def settled(self) -> None:
        """Wait until everything sent so far is stored or refused; what is sent meanwhile does not count."""
        sent = self._sent
        while self._answered < sent:
            self._progress.clear()
            await self._progress.wait()


class Outbox:
    """Owns the one flushing task; `run` it in the loop's task group."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._pending: dict[Account, list[Event]] = {}
        self._pending_events = 0
        self._dirty = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, account: Account, event: Event) -> None:
        """Queue one event; waits only while Redis is so slow that the bound is reached."""
        await self._room.wait()
        self._pending.setdefault(account, []).append(event)
        self._pending_events += 1
        account.sent(1)
        self._dirty.set()
        if self._pending_events >= MAX_PENDING_EVENTS:
            self._room.clear()

    async def last_word(self, account: Account, event: Event) -> None:
        """Returns when it is stored: only then may the offset of its job be committed."""
        await self.put(account, event)
        await account.settled()

    async def run(self) -> None:
        """Flush for ever; cancel when every account has settled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            batch, self._pending = self._pending, {}
            self._pending_events = 0
            self._room.set()
            await self._flush(batch)

    async def _flush(self, batch: dict[Account, list[Event]]) -> None:
        """One round trip for all requests of a model; an LLM worker has one model."""
        models: dict[str, list[tuple[Account, list[Event]]]] = {}
        for account, events in batch.items():
            models.setdefault(account.head.model, []).append((account, events))
        for items in models.values():
            states = await self._append([Outgoing(account.head, events) for account, events in items])
            for (account, events), state in zip(items, states, strict=True):
                account.answered(state, len(events))

    async def _append(self, outgoing: list[Outgoing]) -> list[AppendState]:
        """Append until it succeeds: a repeated append of the same events is recognised and answered "stored"."""
        return await patiently(lambda: self._results.append(outgoing), "storing results")
