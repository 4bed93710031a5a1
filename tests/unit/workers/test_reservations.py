import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest

from infra.faults import Unavailable
from infra.memory import MemoryHub
from infra.metrics import Metrics
from infra.patience import patiently
from schemas.jobs import GenerateJob, Placement
from tests.unit.workers.pool import MODEL, Worker
from tests.unit.workers.pool import job as plain
from tests.waiting import until
from workers import reservations as module
from workers.engines.stub import StubEngine
from workers.reservations import Reservations

ME = "w"


def job(ticket: str, worker: str = ME, tokens: int = 3) -> GenerateJob:
    return msgspec.structs.replace(plain(ticket, tokens=tokens), placement=Placement(ticket, worker, 64))


class Index:
    """Remembers what was given back; away while told so."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], list[str]]] = []
        self.away = False
        self.refused = 0

    async def release(self, first_tokens: Sequence[str], ended: Sequence[str]) -> int:
        await asyncio.sleep(0)
        if self.away:
            self.refused += 1
            raise Unavailable("away")
        self.calls.append((list(first_tokens), list(ended)))
        return len(ended)

    @property
    def first_tokens(self) -> list[str]:
        return [ticket for call in self.calls for ticket in call[0]]

    @property
    def ended(self) -> list[str]:
        return [ticket for call in self.calls for ticket in call[1]]


@pytest.fixture
def index() -> Index:
    return Index()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def held(index: Index, metrics: Metrics) -> Reservations:
    return Reservations(ME, index.release, metrics)


@asynccontextmanager
async def running(held: Reservations) -> AsyncIterator[None]:
    task = asyncio.create_task(held.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def test_many_jobs_go_in_one_call_and_each_part_once(held: Reservations, index: Index) -> None:
    tickets = [f"r{number}" for number in range(30)]
    async with running(held):
        for ticket in tickets:
            held.began(job(ticket))
            held.emitted(job(ticket))
            held.emitted(job(ticket))
        await until(lambda: index.first_tokens == tickets)
        for ticket in tickets:
            held.emitted(job(ticket))
            held.ended(job(ticket))
        await until(lambda: index.ended == tickets)
    assert index.first_tokens == tickets
    assert len(index.calls) == 2


async def test_a_job_that_ends_at_once_is_only_ended(held: Reservations, index: Index) -> None:
    held.began(job("r"))
    held.emitted(job("r"))
    held.ended(job("r"))
    held.emitted(job("r"))
    await held.flush()
    assert index.calls == [([], ["r"])]


async def test_a_job_meant_for_another_worker_is_counted_and_no_load_there(
    held: Reservations, index: Index, metrics: Metrics
) -> None:
    held.began(job("r", worker="other"))
    held.emitted(job("r", worker="other"))
    await held.flush()
    assert index.calls == [([], ["r"])]
    assert 'triptych_misplaced_jobs_total{model="m"} 1.0' in metrics.render().decode()


async def test_a_job_that_nobody_placed_has_nothing_to_give_back(held: Reservations, index: Index) -> None:
    held.began(plain("r"))
    held.emitted(plain("r"))
    held.ended(plain("r"))
    await held.flush()
    assert index.calls == []


async def test_while_redis_is_away_everything_waits_up_to_a_bound(
    held: Reservations, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "patiently", partial(patiently, first_s=0.001))
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    monkeypatch.setattr(module, "AT_ONCE", 4)
    index.away = True
    async with running(held):
        for number in range(12):
            held.ended(job(f"r{number}"))
        await until(lambda: index.refused > 2)
        index.away = False
        await until(lambda: index.ended == [f"r{number}" for number in range(2, 12)])
    assert max(len(ended) for _, ended in index.calls) == 4


async def given_back(worker: Worker) -> tuple[list[str], list[str]]:
    await worker.reservations.flush()
    first_tokens, ended = zip(*worker.released, strict=True) if worker.released else ((), ())
    return [one for part in first_tokens for one in part], [one for part in ended for one in part]


async def test_a_job_gives_back_its_prefill_at_the_first_token_and_the_rest_at_its_end() -> None:
    async with Worker(MemoryHub(), StubEngine(8, 0.01)).running() as worker:
        worker.consumer.put(job("r", tokens=20))
        assert await given_back(worker) == ([], [])
        await until(lambda: len(worker.events("r")) > 2)
        assert await given_back(worker) == (["r"], [])
        await until(lambda: worker.ended("r"))
    assert await given_back(worker) == (["r"], ["r"])


async def test_a_cancelled_job_gives_everything_back() -> None:
    async with Worker(MemoryHub(), StubEngine(8, 0.01)).running() as worker:
        worker.consumer.put(job("r", tokens=500))
        await until(lambda: bool(worker.events("r")))
        await worker.results.cancel(MODEL, "r", "enough")
        await until(lambda: worker.ended("r"))
        assert (await given_back(worker))[1] == ["r"]


async def test_a_job_whose_engine_dies_keeps_its_reservation_until_it_has_run_again() -> None:
    engine = StubEngine(8, 0.01)
    async with Worker(MemoryHub(), engine).running() as worker:
        worker.consumer.put(job("r", tokens=30))
        await until(lambda: bool(worker.events("r")))
        engine.die()
        assert (await given_back(worker))[1] == []
        await until(lambda: worker.ended("r"))
        assert (await given_back(worker))[1] == ["r"]


async def test_a_job_cut_short_by_the_drain_is_no_load_any_more() -> None:
    async with Worker(MemoryHub(), StubEngine(8, 0.01), drain_s=0.05).running() as worker:
        worker.consumer.put(job("r", tokens=5_000))
        await until(lambda: bool(worker.events("r")))
    assert not worker.ended("r")
    assert (await given_back(worker))[1] == ["r"]


async def test_a_job_that_had_ended_before_it_was_read_gives_back_too() -> None:
    async with Worker(MemoryHub(), StubEngine(8, 0.001)).running() as worker:
        worker.consumer.put(job("r"))
        await until(lambda: worker.ended("r"))
        await given_back(worker)
        worker.consumer.finished.clear()
        worker.consumer.put(job("r"))
        await until(lambda: worker.ended("r"))
        assert (await given_back(worker))[1] == ["r", "r"]
