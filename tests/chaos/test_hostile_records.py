"""Trust nobody's record, a bounded part of it: `python -m tests.chaos.hostile` sends as many as one likes."""

from pathlib import Path

import pytest

from tests.chaos.hostile.run import run
from tests.services import S3

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

RECORDS = 1_500


@pytest.mark.parametrize("seed", [20_261_201])
async def test_wrong_records_cost_themselves_and_nobody_else(
    kafka_alone: str, redis_url: str, s3: S3, tmp_path: Path, seed: int
) -> None:
    report = await run(kafka_alone, redis_url, s3, tmp_path, RECORDS, seed)
    assert report.process_ends == 0
    assert report.unanswered_neighbours == 0 and report.neighbours >= RECORDS // 25
    assert report.without_outcome == []
    assert report.with_two_outcomes == []
    assert report.uncommitted == 0
    assert set(report.dead_letters) >= {"empty", "undecodable", "misplaced", "invalid"}
    assert sum(report.ended.values()) + sum(report.dead_letters.values()) == RECORDS
