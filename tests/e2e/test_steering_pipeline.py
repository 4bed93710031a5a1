"""The steering benchmark on real processes, for a few seconds: every request ends, and affinity finds the caches."""

import uuid
from pathlib import Path

import pytest

from infra.settings import Secret, Settings
from tests.bench.steering import pipeline
from tests.bench.steering.pool import World
from tests.bench.steering.rows import Row
from tests.bench.steering.traffic import Shape, grouped
from tests.bench.steering.workloads import Workload
from tests.services import S3

pytestmark = [pytest.mark.services, pytest.mark.timeout(90)]

# Two workers at four times their speed; at 8 requests/s of the model's time nobody saturates.
SHORT = Workload("short", "", grouped(Shape(groups=12, questions=2, output_tokens=20), ((8, 8),)), workers=2)
SPEEDUP = 4.0


async def test_every_request_finishes_and_affinity_finds_more_than_round_robin(
    kafka: str, redis_url: str, s3: S3, tmp_path: Path
) -> None:
    described = tmp_path / "manifests"
    described.mkdir()
    keys = {"s3_access_key": Secret(s3.access_key), "s3_secret_key": Secret(s3.secret_key)}
    settings = Settings(kafka=kafka, redis=redis_url, s3_endpoint=s3.endpoint, manifest_dir=str(described), **keys)
    world = World(settings, tmp_path)

    async def ran(arm: str) -> Row:
        model = f"steering-{uuid.uuid4().hex}"
        [row] = await pipeline.run(world, model, SHORT, arm, 0, SPEEDUP)  # raises when one request does not end whole
        return row

    ours, blind = await ran("affinity"), await ran("round_robin")
    assert ours.requests == blind.requests == 64
    assert ours.mode == "pipeline"
    assert ours.hit_rate > blind.hit_rate + 0.05
    assert ours.predicted_hit_rate == pytest.approx(ours.hit_rate, abs=0.05)
    assert ours.cpu_cores > 0
