"""What a worker keeps of claims that got no answer. Everything else about results: tests/contracts."""

from collections.abc import Sequence

import pytest
from redis.asyncio import Redis

from infra import results as under_test
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.ports import Incarnation
from infra.redis_client import Argument
from infra.results import RedisResults
from schemas.jobs import Head

ME = Incarnation("alice", 1)


class Broken:
    """The claim script, whose answers are lost for as long as the test says. `calls` are the ids that it was given."""

    def __init__(self) -> None:
        self.lost = True
        self.calls: list[Argument] = []

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> list[object]:
        self.calls.append(args[1])
        if self.lost:
            raise Unavailable("no answer")
        return [b"mine", 1, 0, 0, 0]


def head(request_id: str) -> Head:
    return Head(request_id, "m", deadline_at=4e9, created_at=0.0, reply_to="gw")


async def test_calls_that_are_never_repeated_do_not_stay_and_the_latest_are_recognised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(under_test, "MOST_UNANSWERED", 3, raising=False)
    results, script = RedisResults(Redis(), Metrics()), Broken()
    monkeypatch.setattr(results, "_claim", script)
    for number in range(10):
        with pytest.raises(Unavailable):
            await results.claim(head(f"r{number}"), ME, 3)
    assert len(results._unanswered) == 3
    script.lost = False
    assert (await results.claim(head("r9"), ME, 3)).state == "mine"
    assert script.calls[-1] == script.calls[9]
    assert len(results._unanswered) == 2
