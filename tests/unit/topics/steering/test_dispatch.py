"""Placed, then sent; or the reservation is given back: twice, because the decision may come after its release."""

import asyncio
from collections.abc import Sequence

import pytest

from infra.clock import ManualClock
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.ports import Incarnation, PoolView
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.manifest import Limits, Manifest, Source
from schemas.signals import Beat
from schemas.steering import Ask, Choice
from tests.dispatching import Released
from tests.waiting import until
from topics.steering import namespaces, placer
from topics.steering.dispatch import Dispatcher
from topics.steering.placer import IndexPlacer
from topics.steering.releases import AGAIN_AFTER_S, Releases
from topics.steering.steerer import Steerer

MANIFEST = Manifest("m", Source("hf", repo="o/m", revision="r"), Limits(context_tokens=2048))
SPACE = namespaces.key_space(MANIFEST, "template")
VIEW = PoolView({0: Incarnation("w", 1)}, {"w": Beat("w", 1, at=0.0)})
JOB = GenerateJob(Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="gw"), [1, 2], Sampling(max_tokens=1))


class Decider(Steerer):
    """Reserves; `late`: its answer never comes."""

    def __init__(self) -> None:
        self.late = False
        self.reserved: list[str] = []

    async def place(
        self, ticket: str, ask: Ask, block_keys: Sequence[bytes], workers: Sequence[Incarnation], ttl_s: float
    ) -> Choice | None:
        self.reserved.append(ticket)
        if self.late:
            await asyncio.Event().wait()
        return Choice(str(workers[0]), "only one", 0)


class Bus:
    def __init__(self) -> None:
        self.fault: BaseException | None = None
        self.sent: list[object] = []

    async def send(self, topic: str, message: object, **_: object) -> None:
        if self.fault is not None:
            raise self.fault
        self.sent.append(message)


class Desk:
    def __init__(self) -> None:
        self.clock, self.released = ManualClock(), Released()
        self.decider, self.bus = Decider(), Bus()
        self.releases = Releases(self.released, self.clock)
        steered = IndexPlacer(SPACE, 12, self.decider, self.releases, Metrics(), self.clock)
        self.dispatcher = Dispatcher("m", steered, self.bus, self.releases)  # type: ignore[arg-type]  # sends only

    async def gives_back(self, *tickets: str) -> None:
        running = asyncio.create_task(self.dispatcher.run())
        await until(lambda: self.released.tickets == list(tickets))
        running.cancel()


async def test_what_was_sent_keeps_its_reservation() -> None:
    desk = Desk()
    placed = await desk.dispatcher.send(JOB, VIEW)
    assert (placed.worker, desk.decider.reserved, len(desk.bus.sent)) == ("w", ["r"], 1)
    await desk.gives_back()


@pytest.mark.parametrize("fault", [Unavailable("full"), asyncio.CancelledError()])
async def test_a_job_that_cannot_be_sent_gives_its_reservation_back(fault: BaseException) -> None:
    desk = Desk()
    desk.bus.fault = fault
    with pytest.raises(type(fault)):
        await desk.dispatcher.send(JOB, VIEW)
    await desk.gives_back("r")


async def test_a_decision_that_comes_too_late_is_given_back_and_the_job_goes_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placer, "DECIDE_WITHIN_S", 0.01)
    desk = Desk()
    desk.decider.late = True
    placed = await desk.dispatcher.send(JOB, VIEW)
    assert placed.job.placement is None and len(desk.bus.sent) == 1
    await desk.gives_back("r")


async def test_a_caller_that_goes_away_while_it_is_decided_leaves_no_reservation() -> None:
    desk = Desk()
    desk.decider.late = True
    sending = asyncio.create_task(desk.dispatcher.send(JOB, VIEW))
    await until(lambda: bool(desk.decider.reserved))
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await desk.gives_back("r")


async def test_a_release_is_repeated_once_behind_the_decision_that_may_still_be_on_its_way() -> None:
    desk = Desk()
    desk.releases.give_back("r")
    await desk.gives_back("r")
    desk.clock.advance(AGAIN_AFTER_S)
    await desk.gives_back("r", "r")
    desk.clock.advance(10 * AGAIN_AFTER_S)
    await desk.gives_back("r", "r")
