"""Pieces of an answer on their way to decoders, while its text goes on."""

import asyncio
from types import TracebackType
from typing import Self

import msgspec

from infra.clock import Clock
from schemas.events import Part
from schemas.jobs import DecodeJob
from topics import names
from topics.bus import Delivery, Producer
from workers.outbox import Account, Outbox
from workers.outputs import Piece


class PartSender:
    """Those of one attempt; leaving the context gives up what is not sent.

    The event comes first, and is stored before the job is produced: so whoever follows the answer follows the piece
    from its beginning, and an attempt that has been fenced off asks for nothing any more.
    """

    def __init__(self, parent: Delivery, account: Account, outbox: Outbox, producer: Producer, clock: Clock) -> None:
        self._parent = parent
        self._account = account
        self._outbox = outbox
        self._producer = producer
        self._clock = clock
        self._sends: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for send in self._sends:
            send.cancel()
        # Their errors have been raised by now, or the attempt has ended for another reason.
        await asyncio.gather(*self._sends, return_exceptions=True)

    async def ask(self, piece: Piece) -> None:
        """Begin to send; raises as `sent` when an earlier one has failed."""
        for send in self._sends:
            if send.done():
                send.result()
        head, account = self._parent.job.head, self._account
        part_id = f"{head.request_id}.{account.attempt}.{piece.index}.{piece.number}"
        event = Part(account.attempt, account.next_seq(), piece.index, piece.number, piece.kind, part_id)
        await self._outbox.put(account, event)
        self._sends.append(asyncio.create_task(self._send(piece, part_id), name=f"send {part_id}"))

    async def sent(self) -> None:
        """All that were asked for are on their topics.

        Raises:
            Unavailable, Missing, Refused: as Producer.send.
        """
        await asyncio.gather(*self._sends)

    async def _send(self, piece: Piece, part_id: str) -> None:
        await self._account.settled()
        if self._account.refused:
            return
        parent = self._parent.job.head
        head = msgspec.structs.replace(
            parent, request_id=part_id, parent=parent.request_id, created_at=self._clock.now()
        )
        output = piece.output
        job = DecodeJob(head, output.decoder, output.options, codes=piece.codes, text=piece.text)
        await self._producer.send(names.decode(piece.kind), job, headers=self._parent.headers)
