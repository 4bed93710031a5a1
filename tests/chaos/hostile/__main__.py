"""`python -m tests.chaos.hostile --records 20000 --seed 1 --json FILE`: no record stops anybody.

Live pools (an LLM worker with the stub engine, one simulated worker in each media pool) on a broker, Valkey and S3
server of its own; TRIPTYCH_TEST_KAFKA=apache takes Apache Kafka. Exit status 1 when a process ended, a right record
among the wrong ones was not answered, or a record had no outcome or two.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from tests import services
from tests.chaos.hostile.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the report here too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            services.kafka(folder / "k") as kafka,
            services.redis(folder / "r") as redis,
            services.object_store(folder / "s") as s3,
        ):
            report = asyncio.run(run(kafka, redis, s3, folder, given.records, given.seed))
    text = msgspec.json.format(msgspec.json.encode(report)).decode()
    print(text)
    if given.json:
        given.json.write_text(text)
    return int(report.faults > 0)


if __name__ == "__main__":
    sys.exit(main())
