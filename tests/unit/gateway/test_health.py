"""What `/readyz` says of services, and what only the log does."""

import pytest

from gateway.health import Health
from gateway.media_pools import MediaPools
from infra.clock import SystemClock
from infra.faults import Missing, Refused, Unavailable
from infra.lifecycle import Life
from infra.metrics import Metrics
from infra.pool_members import MemoryPoolMembers

SECRETS = "kafka-7.internal:9092"


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Unavailable(f"no answer from {SECRETS}"), "does not answer"),
        (TimeoutError(SECRETS), "does not answer"),
        (Refused(f"wrong password for {SECRETS}"), "refuses"),
        (Missing(SECRETS), "lacks what it should have"),
        (ValueError(SECRETS), "fails"),
    ],
)
async def test_who_asks_is_told_the_kind_of_what_is_wrong_and_only_the_log_the_rest(
    error: Exception, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.health")
    faults: list[Exception] = []

    async def check() -> None:
        if faults:
            raise faults[0]

    clock = SystemClock()
    media_pools = MediaPools([], MemoryPoolMembers(clock), Metrics(), clock, 0)
    health = Health({"bus": check}, [], media_pools, Life(1))
    assert (await health.readiness()).checks == {"bus": "ok"}
    faults.append(error)
    for _ in range(3):
        assert (await health.readiness()).checks == {"bus": answer}
    faults.clear()
    assert (await health.readiness()).ready
    first, second = [one.getMessage() for one in caplog.records if one.name == "gateway.health"]
    assert first.startswith(f"readiness: bus {answer}: ")
    assert second == "readiness: bus is ok again"
