"""Trails of the last requests: found by who asked for them, and bounded."""

import pytest

from gateway import trail
from gateway.request_ids import Ids
from gateway.trail import RequestTrail, Trailed, Trails
from infra.memory import MemoryFollower, MemoryHub, MemoryResults
from infra.ports import Incarnation, Outgoing
from schemas.errors import TriptychError
from schemas.events import Finished, Steered, Token, Usage
from schemas.jobs import Head
from schemas.steering import Alternative, Decision


def head(number: int) -> Head:
    return Head(f"chatcmpl-{number}", "m", deadline_at=2e9, created_at=1.8e9, reply_to="gw")


def test_an_id_that_a_client_has_chosen_finds_nothing_and_hides_nothing() -> None:
    trails = Trails()
    first = trails.begin(head(1), "m", Ids("made-up"))
    second = trails.begin(head(2), "m", Ids("made-up", chosen=True))
    third = trails.begin(head(3), "m", Ids("order-7", chosen=True))
    assert trails.get("made-up") is first
    assert [trails.get(one.id) for one in (first, second, third)] == [first, second, third]
    with pytest.raises(TriptychError, match="No request 'order-7'"):
        trails.get("order-7")


def test_the_oldest_are_forgotten_with_both_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "KEPT", 2)
    trails = Trails()
    for number, exchange in enumerate(["a", "b", "c", "d"]):
        trails.begin(head(number), "m", Ids(exchange))
    for gone in ("chatcmpl-0", "chatcmpl-1", "a", "b"):
        with pytest.raises(TriptychError, match="No request"):
            trails.get(gone)
    assert trails.get("c").id == "chatcmpl-2"
    assert trails.get("d").id == "chatcmpl-3"
    assert len(trails._by_exchange) == 2


async def followed(hub: MemoryHub, one: Head) -> tuple[Trailed, RequestTrail]:
    follower, told = MemoryFollower(hub, "gw"), Trails().begin(one, "m", Ids("a"))
    await follower.start()
    return Trailed(follower.follow("m", one.request_id), told), told


COSTS = {"w2:1": 0.5, "w3:1": 0.75}


async def test_a_decision_that_somebody_else_made_goes_into_the_trail_and_no_further() -> None:
    hub, one = MemoryHub(), head(1)
    results, (events, told) = MemoryResults(hub), await followed(hub, one)
    told.placed(Decision("w1", 3, "cold"))  # the gateway's own; a worker has given the job back since
    await results.claim(one, Incarnation("w1", 1), 3)
    moved = Decision("w1", 7, "home", 48, 1, COSTS)
    token, end = Token(1, 2, 0, "x", [1]), Finished(1, 3, Usage(64, 1, 48), "w1", 7)
    await results.append([Outgoing(one, [Steered(1, 1, moved), token, end])])
    assert await anext(events) == token
    assert (told.steering, told.placed_worker, told.partition, told.hops) == ("home", "w1", 7, 1)
    assert told.predicted_cached_tokens == 48
    assert told.alternatives == [Alternative("w2:1", 0.5), Alternative("w3:1", 0.75)]
    assert events.ready() == [end]


async def test_the_decision_of_the_last_attempt_holds() -> None:
    hub, one = MemoryHub(), head(1)
    results, (events, told) = MemoryResults(hub), await followed(hub, one)
    for attempt, worker in enumerate(("w1", "w2"), 1):
        me = Incarnation(worker, 1)
        hub.alive["m", worker] = 1
        await results.claim(one, me, 3)
        await results.append([Outgoing(one, [Steered(attempt, attempt, Decision(worker, 0, "cold"))])])
        del hub.alive["m", worker]
    late = await results.append([Outgoing(one, [Steered(1, 2, Decision("w1", 0, "late"))])])
    await results.append([Outgoing(one, [Token(2, 3, 0, "x", [1])])])
    assert late == ["fenced"]
    assert events.ready() == [Token(2, 3, 0, "x", [1])]
    assert (told.placed_worker, told.steering) == ("w2", "cold")
