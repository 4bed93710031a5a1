"""Dynamic batching: whoever has an item submits it; what has gathered while the last batch ran is the next one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

I = TypeVar("I")  # noqa: E741 - in
O = TypeVar("O")  # noqa: E741 - out


class NotWanted(Exception):
    """By the time of its batch nobody wanted the item any more."""


class Batcher(Generic[I, O]):
    """Gives at most `most` items at a time to `compute`, which runs in a thread of its own, one call after the other.

    `wanted` is asked just before, for the whole batch. `gather_s`: how long the first item of an idle batcher waits
    for company.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[I]], Sequence[O]],
        most: int,
        *,
        wanted: Callable[[Sequence[I]], Awaitable[Sequence[bool]]],
        gather_s: float = 0.005,
    ) -> None:
        self._compute = compute
        self._most = most
        self._wanted = wanted
        self._gather_s = gather_s
        self._waiting: asyncio.Queue[tuple[I, asyncio.Future[O]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")

    async def submit(self, item: I) -> O:
        """What `compute` makes of it.

        Raises:
            NotWanted: `wanted` said so.
            Whatever `compute` raises for this item alone: a batch that fails is computed again one by one, so that
                no item is failed by its company.
        """
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((item, future))
        return await future

    async def run(self) -> None:
        """Compute batches until cancelled."""
        while True:
            first = await self._waiting.get()
            if self._waiting.empty():
                await asyncio.sleep(self._gather_s)
            batch = [first]
            while len(batch) < self._most and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await self._settle([one for one in batch if not one[1].done()])  # done: its submitter has gone

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _settle(self, batch: Sequence[tuple[I, asyncio.Future[O]]]) -> None:
        try:
            kept = await self._still_wanted(batch)
            results = await self._in_thread([item for item, _ in kept]) if kept else []
        except Exception as error:
            if len(batch) > 1:
                log.exception("a batch of %d failed; one by one now", len(batch))
                for one in batch:
                    await self._settle([one])
            elif batch and not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, future), result in zip(kept, results, strict=True):
            if not future.done():
                future.set_result(result)

    async def _still_wanted(self, batch: Sequence[tuple[I, asyncio.Future[O]]]) -> list[tuple[I, asyncio.Future[O]]]:
        answers = await self._wanted([item for item, _ in batch])
        for (_, future), wanted in zip(batch, answers, strict=True):
            if not wanted and not future.done():
                future.set_exception(NotWanted())
        return [one for one, wanted in zip(batch, answers, strict=True) if wanted]

    async def _in_thread(self, items: Sequence[I]) -> Sequence[O]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, items)
