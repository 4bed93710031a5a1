"""A queued job that would miss its bound goes to an idle worker; what cannot be sent stays."""

import msgspec
import pytest

from infra.clock import ManualClock
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.ports import Incarnation, PoolView
from infra.prefix_index import Look
from schemas.jobs import GenerateJob, Placement
from schemas.manifest import Limits, Manifest, Source
from schemas.signals import Beat
from schemas.steering import Choice, Decision, WorkerView
from tests.dispatching import Released, dispatcher
from tests.unit.workers.pool import ListConsumer, job
from topics.bus import Delivery, Position
from topics.headers import Headers
from topics.steering.placer import Placed
from workers.handoff import HandOff
from workers.job_queue import JobQueue

ME, OTHER = Incarnation("w1", 1), Incarnation("w2", 1)
MANIFEST = Manifest("m", Source("hf", repo="a/b"), Limits(context_tokens=4096), partitions=2)

HEADERS = [("x-request-id", b"theirs")]


class FakeLeases:
    async def view(self, partitions: int) -> PoolView:
        beats = {one.worker: Beat(one.worker, one.epoch, 0.0) for one in (ME, OTHER)}
        return PoolView({0: ME, 1: OTHER}, beats)


class FakeIndex:
    def __init__(self, mine: WorkerView, other: WorkerView) -> None:
        self.views = [mine, other]
        self.released: list[str] = []

    async def look(self, block_keys: object, workers: list[Incarnation]) -> Look:
        return Look(1, self.views)

    async def release(self, first_tokens: list[str], ended: list[str]) -> int:
        self.released += ended
        return len(ended)


class FakePlacer:
    def __init__(self) -> None:
        self.views: list[PoolView] = []

    async def place(self, job: GenerateJob, view: PoolView, sent: object, session: str = "") -> Placed:
        self.views.append(view)
        assert job.placement is not None
        placement = Placement(f"{job.head.request_id}#1", "w2", 0, "cold", job.placement.hops + 1)
        placed = msgspec.structs.replace(job, placement=placement)
        return Placed(placed, 1, "w2", Choice("w2:1", "cold", 0), placement.hops)

    def answered(self, completion_tokens: int) -> None: ...


class FakeProducer:
    def __init__(self) -> None:
        self.sent: list[tuple[str, GenerateJob, int]] = []
        self.refuses = False

    async def send(self, topic: str, message: GenerateJob, *, partition: int, key: bytes, headers: Headers) -> None:
        if self.refuses:
            raise Unavailable("no")
        self.sent.append((topic, message, partition))
        assert headers == HEADERS


class Bench:
    """One worker with one queued job that has waited `waited_s`, and an idle neighbour."""

    def __init__(self, waited_s: float, backlog_tokens: int, hops: int = 0) -> None:
        clock = ManualClock()
        one = job("a")
        head = msgspec.structs.replace(one.head, created_at=clock.now() - waited_s)
        placed = Placement("a", "w1", 0, "home", hops)
        self.delivery = Delivery(
            Position("generate.m", 0, 5), GenerateJob(head, [1] * 1_000, one.sampling, placement=placed), HEADERS
        )
        self.queue, self.consumer, self.producer = JobQueue(), ListConsumer(ME), FakeProducer()
        self.queue.add(self.delivery)
        self.placer, self.released = FakePlacer(), Released()
        mine = WorkerView(str(ME), uncached_tokens=backlog_tokens, prefill_tokens_per_s=1_000.0, waiting=1)
        self.index = FakeIndex(mine, WorkerView(str(OTHER), prefill_tokens_per_s=1_000.0))
        self.handoff = HandOff(
            ME,
            MANIFEST,
            self.queue,
            self.consumer,
            dispatcher("m", self.placer, self.producer, self.released, clock),
            FakeLeases(),  # type: ignore[arg-type]  # fakes keep to the part of the Protocol that is used
            self.index,  # type: ignore[arg-type]
            Metrics(),
            clock,
            bound_s=10.0,
        )


async def test_a_job_that_would_wait_too_long_goes_to_the_idle_worker() -> None:
    bench = Bench(waited_s=4.0, backlog_tokens=20_000)
    assert await bench.handoff.once() == 1
    ((topic, moved, partition),) = bench.producer.sent
    assert (topic, partition) == ("generate.m", 1)
    assert moved.placement is not None
    assert (moved.placement.worker, moved.placement.hops) == ("w2", 1)
    assert moved.decision == Decision("w2", 1, "cold", hops=1)
    assert bench.consumer.finished == ["a"]
    assert len(bench.queue) == 0
    assert bench.index.released == ["a"]
    assert ME not in bench.placer.views[0].owners.values()


async def test_a_job_that_will_be_in_time_stays() -> None:
    bench = Bench(waited_s=1.0, backlog_tokens=2_000)
    assert await bench.handoff.once() == 0
    assert len(bench.queue) == 1


async def test_a_job_is_not_handed_on_for_ever() -> None:
    bench = Bench(waited_s=60.0, backlog_tokens=20_000, hops=2)
    assert await bench.handoff.once() == 0


async def test_a_job_that_the_broker_does_not_take_stays_here() -> None:
    bench = Bench(waited_s=4.0, backlog_tokens=20_000)
    bench.producer.refuses = True
    with pytest.raises(Unavailable):
        await bench.handoff.once()
    assert list(bench.queue) == [bench.delivery]
    assert bench.consumer.finished == []
    assert bench.index.released == []
