"""The topics as an AsyncAPI 3 document: FastStream describes channels and operations, msgspec what the records hold.

What AsyncAPI has no word for is under `x-`: who writes and who reads a topic, its consumer group, the size limit.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from faststream.kafka import KafkaBroker
from faststream.specification.asyncapi import AsyncAPI

from infra.settings import Settings
from schemas import jobs, media, refs
from schemas.jobs import DeadLetter, DecodeJob, EncodeJob, GenerateJob, Offloaded
from schemas.manifest import Manifest
from topics import asyncapi_samples, field_words, headers, names

# What stands on a topic, by the first part of its name. Any job may stand there as the key of an object (claim check).
PAYLOADS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "generate": (GenerateJob, Offloaded),
    "encode": (EncodeJob, Offloaded),
    "decode": (DecodeJob, Offloaded),
    names.DEAD_LETTERS: (DeadLetter,),
}
CONTENT_TYPE = "application/msgpack"  # records that begin with a brace are read as JSON, too
_SCHEMAS = "#/components/schemas/"
_BINDING = "0.4.0"
_KEY = {"type": "string", "description": "`head.request_id`, or none. Nothing depends on it."}
_TRACING = {
    "x-request-id": "of the HTTP request",
    "traceparent": "W3C trace context",
    "tracestate": "W3C trace context",
}
_OF_CLIENT = {
    "user": "what the client calls its user",
    "safety-identifier": "as the client gave it",
    "metadata": "of the client, as JSON",
}
_HEADERS = {
    "type": "object",
    "description": "For logs, traces and whoever else reads the topic; no work depends on them. "
    + ", ".join(f"`{name}`" for name in headers.PASSED_ON)
    + " go on to the jobs that this one begets.",
    "properties": {name: {"type": "string", "description": text} for name, text in (_TRACING | _OF_CLIENT).items()},
}


def document(settings: Settings, manifests: Sequence[Manifest]) -> bytes:
    """JSON, of all topics that serving these models needs."""
    broker = KafkaBroker(settings.kafka.split(","), apply_types=False, logger=None)
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
    spec["defaultContentType"] = CONTENT_TYPE
    spec["channels"] = {name: spec["channels"][name] for name in topics}
    groups = names.groups_for(list(manifests))
    for name, channel in spec["channels"].items():
        _describe_channel(channel, topics[name], settings.partition_replicas, groups.get(name))
    spec["components"]["schemas"] = _schemas(dict.fromkeys(kind for name in topics for kind in payloads(name)))
    for name, message in spec["components"]["messages"].items():
        _describe_message(message, topics[name.partition(":")[0]], manifests)
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


def _describe_channel(channel: dict[str, Any], topic: names.Topic, replicas: int, group: str | None) -> None:
    channel["bindings"]["kafka"] |= {
        "partitions": topic.partitions,
        "replicas": replicas,
        "topicConfiguration": {"cleanup.policy": [topic.cleanup], "retention.ms": topic.retention_ms},
    }
    channel |= {
        "x-written-by": topic.written_by,
        "x-read-by": topic.read_by,
        "x-max-record-bytes": names.MAX_MESSAGE_BYTES,
    }
    if group:
        channel["x-consumer-group"] = group


def _describe_message(message: dict[str, Any], topic: names.Topic, manifests: Sequence[Manifest]) -> None:
    """FastStream knows of pydantic only; our records are msgspec's."""
    kinds = payloads(topic.name)
    choices = [{"$ref": f"{_SCHEMAS}{kind.__name__}"} for kind in kinds]
    message |= {
        "title": kinds[0].__name__,
        "payload": choices[0] if len(choices) == 1 else {"oneOf": choices},
        "contentType": CONTENT_TYPE,
        "examples": [
            {"name": type(one).__name__, "payload": msgspec.to_builtins(one)}
            for one in asyncapi_samples.of(topic.name, manifests)
        ],
    }
    message.pop("correlationId", None)  # ours is head.request_id, which is also the record's key
    if topic.name != names.DEAD_LETTERS:  # a letter carries key and headers of its record inside, and has none itself
        message |= {"headers": _HEADERS, "bindings": {"kafka": {"key": _KEY, "bindingVersion": _BINDING}}}


def payloads(topic: str) -> tuple[type[msgspec.Struct], ...]:
    """The types that may stand on it."""
    return PAYLOADS[topic if topic in PAYLOADS else topic.partition(".")[0]]


def _schemas(kinds: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Of these types and of those inside them, each field with the words that explain it."""
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
    for name, schema in schemas.items():
        kind = next(vars(one)[name] for one in (jobs, media, refs) if name in vars(one))
        words = field_words.of(kind)
        if tag := kind.__struct_config__.tag_field:
            words[tag] = "tells what this is"
        schema["properties"] |= {key: _with(schema["properties"][key], text) for key, text in words.items()}
    return {name: _as_asyncapi(schema) for name, schema in schemas.items()}


def _as_asyncapi(schema: Any) -> Any:
    """Without OpenAPI's `discriminator`, which here must be something else; each type's tag has one value anyway."""
    if isinstance(schema, list):
        return [_as_asyncapi(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _as_asyncapi(one) for key, one in schema.items() if key != "discriminator"}


def _with(schema: dict[str, Any], description: str) -> dict[str, Any]:
    """What stands beside a `$ref` is not read."""
    return ({"allOf": [schema]} if "$ref" in schema else schema) | {"description": description}
