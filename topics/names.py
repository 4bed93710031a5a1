"""The topic table. One row per kind of topic: this is both the documentation and what `triptych topics create` does.

| topic            | partitions    | retention | cleanup | written by                | read by               |
|------------------|---------------|-----------|---------|---------------------------|-----------------------|
| generate.<model> | manifest (12) | 1 day     | delete  | gateway                   | LLM workers, by lease |
| encode.<pool>    | 12            | 1 day     | delete  | gateway                   | encoders, as a group  |
| decode.<kind>    | 12            | 1 day     | delete  | LLM workers, gateway      | decoders, as a group  |
| dead-letters     | 1             | 30 days   | delete  | whoever cannot read a job | operators             |

`encode.vision`, `encode.audio`, `decode.image` and `decode.audio` exist when a served model needs them, and serve all
models; the consumer group bears the topic's name.
"""

from collections.abc import Iterable

import msgspec

from schemas.manifest import Manifest
from schemas.media import DecoderKind, EncoderKind

DAY_MS = 86_400_000
# Promise P6. Far below every broker's limit, so that a burst of them fits a fetch and a page cache.
MAX_MESSAGE_BYTES = 64 * 1024

DEAD_LETTERS = "dead-letters"
# An encode or decode job goes to any partition: as many as there will be workers of one pool.
POOL_PARTITIONS = 12


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


def encode(pool: EncoderKind) -> str:
    return f"encode.{pool}"


def decode(kind: DecoderKind) -> str:
    return f"decode.{kind}"


def media_pools(manifests: Iterable[Manifest]) -> list[str]:
    """The stateless pools that serving these models needs; a pool, its topic and its group share a name."""
    models = list(manifests)
    encoders = [encode(pool) for one in models for pool in one.encoders]
    return list(dict.fromkeys(encoders + [decode(kind) for one in models for kind in one.decoders]))


def topics_for(manifests: list[Manifest]) -> list[Topic]:
    """All topics that serving these models needs."""
    llms = {one.pool: one.partitions for one in manifests}
    rows = [
        Topic(generate(pool), partitions, DAY_MS, "delete", "gateway, encoders", "LLM workers (leases)")
        for pool, partitions in llms.items()
    ]
    encoders = dict.fromkeys(encode(pool) for one in manifests for pool in one.encoders)
    rows += [Topic(name, POOL_PARTITIONS, DAY_MS, "delete", "gateway", "encoders (group)") for name in encoders]
    decoders = dict.fromkeys(decode(kind) for one in manifests for kind in one.decoders)
    rows += [Topic(name, POOL_PARTITIONS, DAY_MS, "delete", "LLMs, gateway", "decoders (group)") for name in decoders]
    rows.append(Topic(DEAD_LETTERS, 1, 30 * DAY_MS, "delete", "workers", "operators"))
    return rows


def groups_for(manifests: list[Manifest]) -> dict[str, str]:
    """By topic, the group that commits what has been read of it."""
    groups = {generate(one.pool): group(one.pool) for one in manifests}
    return groups | {pool: pool for pool in media_pools(manifests)}
