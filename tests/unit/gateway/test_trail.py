"""Trails of the last requests: found by either id, and bounded."""

import pytest

from gateway import trail
from gateway.trail import Trails
from schemas.errors import TriptychError
from schemas.jobs import Head


def head(number: int) -> Head:
    return Head(f"chatcmpl-{number}", "m", deadline_at=2e9, created_at=1.8e9, reply_to="gw")


def test_an_id_of_the_client_s_finds_its_latest_request() -> None:
    trails = Trails()
    first = trails.begin(head(1), "m", "a")
    latest = trails.begin(head(2), "m", "a")
    assert trails.get("a") is latest
    assert trails.get("chatcmpl-1") is first


def test_the_oldest_are_forgotten_with_both_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "KEPT", 2)
    trails = Trails()
    for number, caller in enumerate(["a", "b", "a", "c"]):
        trails.begin(head(number), "m", caller)
    for gone in ("chatcmpl-0", "chatcmpl-1", "b"):
        with pytest.raises(TriptychError, match="No request"):
            trails.get(gone)
    assert trails.get("a").id == "chatcmpl-2"  # used again since the first was forgotten
    assert trails.get("c").id == "chatcmpl-3"
    assert len(trails._by_caller) == 2
