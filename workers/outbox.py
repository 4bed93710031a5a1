"""The way out: collects what all running jobs emit and stores it in one round trip per engine step.

While one append is on its way, the next step's events gather; so the slower Redis is, the larger the batches get.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from infra.patience import MENDED, patiently
from infra.ports import AppendState, Outgoing, Results
from schemas.errors import Code
from schemas.events import Cancelled, Event, Failed
from schemas.jobs import Head

log = logging.getLogger(__name__)

MAX_PENDING_EVENTS = 20_000


class Account:
    """One attempt's line to the client: numbers its events and learns what became of them."""

    def __init__(
        self, head: Head, attempt: int, last_seq: int, on_state: Callable[[AppendState | Literal["broken"]], None]
    ) -> None:
        self.head = head
        self.attempt = attempt
        self.seq = last_seq
        self.emitted_tokens = False
        self.broken: Exception | None = None  # an event of it cannot be stored: no more of this attempt can
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

    def broke(self, error: Exception, count: int) -> None:
        self.broken = error
        self._on_state("broken")
        self.answered("fenced", count)

    async def settled(self) -> None:
        """Wait until everything sent so far is stored or refused; what is sent meanwhile does not count.

        Raises:
            What storing an event of it has raised, other than an outage.
        """
        sent = self._sent
        while self._answered < sent:
            self._progress.clear()
            await self._progress.wait()
        if self.broken is not None:
            raise self.broken


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
            await self._store(items)

    async def _store(self, items: list[tuple[Account, list[Event]]]) -> None:
        """Should one of them be what the store cannot take, the others are stored all the same."""
        try:
            states = await self._append([Outgoing(account.head, events) for account, events in items])
        except Exception as error:
            if len(items) > 1:
                for item in items:
                    await self._store([item])
                return
            account, events = items[0]
            log.exception("events of %s cannot be stored", account.head.request_id)
            account.broke(error, len(events))
            return
        for (account, events), state in zip(items, states, strict=True):
            account.answered(state, len(events))

    async def _append(self, outgoing: list[Outgoing]) -> list[AppendState]:
        """Append until it succeeds: a repeated append of the same events is recognised and answered "stored"."""
        return await patiently(lambda: self._results.append(outgoing), "storing results", waits_for=MENDED)
