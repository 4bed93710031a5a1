"""The topic table. One row per kind of topic: this is both the documentation and what `triptych topics create` does.

| topic            | partitions    | retention | cleanup | written by                | read by               |
|------------------|---------------|-----------|---------|---------------------------|-----------------------|
| generate.<model> | manifest (12) | 1 day     | delete  | gateway                   | LLM workers, by lease |
| dead-letters     | 1             | 30 days   | delete  | whoever cannot read a job | operators             |
"""

import msgspec

from schemas.manifest import Manifest

DAY_MS = 86_400_000
# Promise P6. Far below every broker's limit, so that a burst of them fits a fetch and a page cache.
MAX_MESSAGE_BYTES = 64 * 1024

DEAD_LETTERS = "dead-letters"


class Topic(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    retention_ms: int
    cleanup: str
    written_by: str
    read_by: str


def generate(model: str) -> str:
    return f"generate.{model}"


def group(model: str) -> str:
    """The consumer group that offsets of `generate.<model>` are committed to: what lag tools and KEDA look at."""
    return f"llm.{model}"


def topics_for(manifests: list[Manifest]) -> list[Topic]:
    """All topics that serving these models needs."""
    rows = [
        Topic(generate(one.id), one.partitions, DAY_MS, "delete", "gateway", "LLM workers (leases)")
        for one in manifests
    ]
    rows.append(Topic(DEAD_LETTERS, 1, 30 * DAY_MS, "delete", "workers", "operators"))
    return rows
