import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.waiting import until
from workers.batcher import Batcher, NotWanted


async def everything(batch: Sequence[int]) -> list[bool]:
    return [True] * len(batch)


class Machine:
    """Doubles numbers; `gate` holds a batch up; what is in `poison` breaks it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.poison: set[int] = set()

    def __call__(self, batch: Sequence[int]) -> list[int]:
        self.batches.append(list(batch))
        assert self.gate.wait(10)
        if self.poison & set(batch):
            raise ZeroDivisionError(f"in {batch}")
        return [2 * one for one in batch]


@asynccontextmanager
async def at_work(
    machine: Machine, most: int = 4, wanted: Callable[[Sequence[int]], object] = everything
) -> AsyncIterator[Batcher[int, int]]:
    batcher: Batcher[int, int] = Batcher(machine, most, wanted=wanted)  # type: ignore[arg-type]  # of tests
    task = asyncio.create_task(batcher.run())
    yield batcher
    task.cancel()
    await asyncio.wait([task])
    batcher.close()


async def test_items_that_come_together_go_together_and_no_more_than_allowed() -> None:
    machine = Machine()
    async with at_work(machine) as batcher:
        assert await asyncio.gather(*map(batcher.submit, range(6))) == [0, 2, 4, 6, 8, 10]
    assert machine.batches == [[0, 1, 2, 3], [4, 5]]


async def test_items_gather_while_a_batch_runs() -> None:
    machine = Machine()
    machine.gate.clear()
    async with at_work(machine) as batcher:
        first = asyncio.create_task(batcher.submit(1))
        await until(lambda: machine.batches == [[1]])
        others = [asyncio.create_task(batcher.submit(one)) for one in (2, 3)]
        await asyncio.sleep(0)
        machine.gate.set()
        assert await asyncio.gather(first, *others) == [2, 4, 6]
    assert machine.batches == [[1], [2, 3]]


async def test_an_item_that_breaks_its_batch_fails_alone() -> None:
    machine = Machine()
    machine.poison = {2}
    async with at_work(machine) as batcher:
        found = await asyncio.gather(*map(batcher.submit, (1, 2, 3)), return_exceptions=True)
    assert (found[0], found[2]) == (2, 6)
    assert isinstance(found[1], ZeroDivisionError)
    assert machine.batches == [[1, 2, 3], [1], [2], [3]]


async def test_what_nobody_wants_any_more_is_left_out() -> None:
    machine = Machine()

    async def odd(batch: Sequence[int]) -> list[bool]:
        return [one % 2 == 1 for one in batch]

    async with at_work(machine, wanted=odd) as batcher:
        found = await asyncio.gather(*map(batcher.submit, (1, 2, 3)), return_exceptions=True)
    assert (found[0], found[2]) == (2, 6)
    assert isinstance(found[1], NotWanted)
    assert machine.batches == [[1, 3]]


async def test_an_item_whose_submitter_has_gone_is_not_computed() -> None:
    machine = Machine()
    machine.gate.clear()
    async with at_work(machine) as batcher:
        first = asyncio.create_task(batcher.submit(1))
        await until(lambda: machine.batches == [[1]])
        gone = asyncio.create_task(batcher.submit(2))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        machine.gate.set()
        assert await first == 2
        assert await batcher.submit(3) == 6
    assert machine.batches == [[1], [3]]
