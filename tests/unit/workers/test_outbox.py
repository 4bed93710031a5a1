"""The way out, with its promises: one model a call, and settling that is not starved."""

import asyncio
from collections.abc import Sequence

import msgspec

from infra.memory import MemoryHub, MemoryResults
from infra.ports import AppendState, Incarnation, Outgoing
from schemas.events import Progress
from tests.unit.workers.decoders import head
from workers.outbox import Account, Outbox


class _OneModel(MemoryResults):
    """As strict as the real one: all of one call are of one model. Answers when it is let."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__(hub)
        self.go = asyncio.Semaphore(0)

    async def append(self, outgoing: Sequence[Outgoing]) -> list[AppendState]:
        assert len({one.head.model for one in outgoing}) == 1
        await self.go.acquire()
        return await super().append(outgoing)


async def claimed(results: MemoryResults, model: str) -> Account:
    one = msgspec.structs.replace(head(f"r-{model}"), model=model)
    claim = await results.claim(one, Incarnation("w", 1), 3)
    return Account(one, claim.attempt, claim.last_seq, lambda _: None)


async def test_requests_of_several_models_go_out_one_model_at_a_time() -> None:
    results = _OneModel(MemoryHub())
    outbox, accounts = Outbox(results), [await claimed(results, model) for model in ("a", "b")]
    for account in accounts:
        await outbox.put(account, Progress(1, account.next_seq(), 1, 2))
    flushing = asyncio.create_task(outbox.run())
    results.go.release()
    results.go.release()
    await asyncio.wait_for(asyncio.gather(*(account.settled() for account in accounts)), 2)
    flushing.cancel()
    assert not any(account.refused for account in accounts)


async def test_settling_does_not_wait_for_what_is_sent_meanwhile() -> None:
    results = _OneModel(MemoryHub())
    outbox, account = Outbox(results), await claimed(results, "a")
    await outbox.put(account, Progress(1, account.next_seq(), 1, 9))
    flushing = asyncio.create_task(outbox.run())
    settling = asyncio.create_task(account.settled())
    await asyncio.sleep(0)
    await outbox.put(account, Progress(1, account.next_seq(), 2, 9))
    results.go.release()  # the first call only
    await asyncio.wait_for(settling, 2)
    flushing.cancel()
