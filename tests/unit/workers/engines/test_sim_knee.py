"""The model may be used to claim something only while it reproduces what was published of workload W1."""

import pytest

from tests.bench.steering.cluster import Cluster
from tests.bench.steering.gateway import VARIANTS
from tests.bench.steering.rows import Row, row
from tests.bench.steering.traffic import Shape, grouped
from tests.bench.steering.workloads import Workload
from topics.steering.policy import parse_policy

LADDER = ((15, 20), (15, 20), (22, 60))


def climb(policy: str) -> list[Row]:
    workload = Workload("w1", "", grouped(Shape(), LADDER))
    cluster, rows = Cluster(workload, parse_policy(policy), 0, VARIANTS["exact"]), []
    for rung in workload.rungs(0):
        started_at = cluster.now
        names = {"workload": "w1", "arm": policy, "mode": "fast", "variant": "exact", "seed": 0}
        rows.append(row(cluster.run(rung), rung, started_at, **names))
    return rows


def test_round_robin_holds_at_15_requests_a_second_and_breaks_at_22() -> None:
    _, below, above = climb("round_robin")
    assert below.ttft_p90_s < 5.0
    assert above.ttft_p90_s > 20.0
    assert above.out_tokens_s < 0.4 * 22 * 1_000  # published: 5,722 over the ladder


def test_affinity_does_not_break_there_and_hits_what_it_predicts() -> None:
    above = climb("affinity")[-1]
    assert above.ttft_p90_s < 1.0
    assert above.hit_rate > 0.9
    assert above.predicted_hit_rate == pytest.approx(above.hit_rate, abs=0.02)
