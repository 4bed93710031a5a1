"""The topics as an AsyncAPI 3 document: FastStream describes channels and operations, msgspec what the records hold."""

from collections.abc import Sequence
from typing import Any

import msgspec
from faststream.kafka import KafkaBroker
from faststream.specification.asyncapi import AsyncAPI

from infra.settings import Settings
from schemas.jobs import DeadLetter, DecodeJob, EncodeJob, GenerateJob, Offloaded
from schemas.manifest import Manifest
from topics import names

# What stands on a topic, by the first part of its name. Any job may stand there as the key of an object (claim check).
PAYLOADS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "generate": (GenerateJob, Offloaded),
    "encode": (EncodeJob, Offloaded),
    "decode": (DecodeJob, Offloaded),
    names.DEAD_LETTERS: (DeadLetter,),
}
CONTENT_TYPE = "application/msgpack"  # records that begin with a brace are read as JSON, too
_SCHEMAS = "#/components/schemas/"


def document(settings: Settings, manifests: Sequence[Manifest]) -> bytes:
    """JSON, of all topics that serving these models needs."""
    broker = KafkaBroker(settings.kafka, apply_types=False, logger=None)
    topics = {one.name: one for one in names.topics_for(list(manifests))}
    for topic in topics.values():
        _declare(broker, topic)
    described = AsyncAPI(
        broker,
        title="Triptych",
        version="1",
        description="Jobs on their way through the pools. Records are MessagePack; those that begin with { are JSON.",
    )
    spec: dict[str, Any] = described.to_specification().to_jsonable()
    _describe_payloads(spec)
    return msgspec.json.format(msgspec.json.encode(spec), indent=2)


def _declare(broker: KafkaBroker, topic: names.Topic) -> None:
    text = f"Written by {topic.written_by}, read by {topic.read_by}; kept for {topic.retention_ms // names.DAY_MS} d."
    if topic.name == names.DEAD_LETTERS:
        broker.publisher(topic.name, title=topic.name, description=text, schema=bytes)
        return
    subscriber = broker.subscriber(topic.name, group_id=topic.name, batch=True, title=topic.name, description=text)
    subscriber(_received)


async def _received(jobs: list[bytes]) -> None:
    """Stands for whatever reads the topic."""


def _describe_payloads(spec: dict[str, Any]) -> None:
    """FastStream knows of pydantic only; our records are msgspec's."""
    kinds = dict.fromkeys(kind for found in PAYLOADS.values() for kind in found)
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
    spec["components"]["schemas"] = schemas
    for name, message in spec["components"]["messages"].items():
        topic = name.partition(":")[0]
        found = PAYLOADS[topic if topic in PAYLOADS else topic.partition(".")[0]]
        choices = [{"$ref": f"{_SCHEMAS}{kind.__name__}"} for kind in found]
        message["payload"] = choices[0] if len(choices) == 1 else {"oneOf": choices}
        message["contentType"] = CONTENT_TYPE
        message.pop("correlationId", None)  # ours is head.request_id, which is also the record's key
