import json
import re
from typing import Any

import msgspec
import pytest

from infra.settings import Settings
from schemas import codec
from schemas.jobs import DeadLetter, EncodeJob
from schemas.manifest import Decoder, Encoder, Limits, Manifest, Source
from topics import asyncapi, headers, names

MODEL = Manifest(
    "omni",
    Source("hf"),
    Limits(512),
    encoders={"vision": Encoder("digits", "embeddings"), "audio": Encoder("whisper", "text")},
    decoders={"image": Decoder("digits")},
)


@pytest.fixture(scope="module")
def page() -> Any:
    return json.loads(asyncapi.document(Settings(kafka="kafka:9092"), [MODEL]))


def test_every_topic_of_the_table_is_a_channel(page: Any) -> None:
    assert {one["address"] for one in page["channels"].values()} == {one.name for one in names.topics_for([MODEL])}
    assert page["asyncapi"].startswith("3.")
    assert page["servers"]["development"]["host"] == "kafka:9092"


def test_the_payload_of_a_topic_is_its_job_or_the_key_of_one(page: Any) -> None:
    channel = page["channels"]["encode.vision"]
    (message,) = channel["messages"].values()
    payload = page["components"]["messages"][message["$ref"].rpartition("/")[2]]["payload"]
    assert payload == {
        "oneOf": [{"$ref": "#/components/schemas/EncodeJob"}, {"$ref": "#/components/schemas/Offloaded"}]
    }
    assert "slots" in page["components"]["schemas"]["EncodeJob"]["properties"]


def test_nothing_is_referred_to_that_is_not_there(page: Any) -> None:
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(page)):
        found = page
        for step in reference.split("/"):
            found = found[step]


def test_a_channel_says_all_that_the_table_does(page: Any) -> None:
    groups = names.groups_for([MODEL])
    for topic in names.topics_for([MODEL]):
        channel = page["channels"][topic.name]
        kafka = channel["bindings"]["kafka"]
        assert (kafka["partitions"], kafka["replicas"]) == (topic.partitions, 1)
        assert kafka["topicConfiguration"] == {
            "cleanup.policy": [topic.cleanup],
            "retention.ms": topic.retention_ms,
        }
        assert (channel["x-written-by"], channel["x-read-by"]) == (topic.written_by, topic.read_by)
        assert channel["x-max-record-bytes"] == names.MAX_MESSAGE_BYTES
        assert channel.get("x-consumer-group") == groups.get(topic.name)


def test_unions_are_told_apart_by_their_tags_alone(page: Any) -> None:
    schemas = page["components"]["schemas"]
    assert "discriminator" not in json.dumps(schemas)  # as OpenAPI has it, the specification forbids it
    options = [one["$ref"].rpartition("/")[2] for one in schemas["DecodeJob"]["properties"]["options"]["anyOf"]]
    assert [schemas[one]["properties"]["type"]["enum"] for one in options] == [["image"], ["speech"]]


def test_every_field_of_every_type_is_explained(page: Any) -> None:
    silent = [
        f"{kind}.{name}"
        for kind, schema in page["components"]["schemas"].items()
        for name, one in schema["properties"].items()
        if not one.get("description") or re.search("noqa|type: ignore|None", one["description"])
    ]
    assert not silent


def test_the_samples_of_a_topic_are_what_its_readers_take(page: Any) -> None:
    for name, channel in page["channels"].items():
        for reference in channel["messages"].values():
            message = page["components"]["messages"][reference["$ref"].rpartition("/")[2]]
            kinds = asyncapi.payloads(name)
            assert [one["name"] for one in message["examples"]] == [one.__name__ for one in kinds]
            for example, kind in zip(message["examples"], kinds, strict=True):
                assert isinstance(_read(name, example["payload"]), kind)


def test_a_sample_names_what_its_model_has(page: Any) -> None:
    job = codec.decode_message(json.dumps(_example(page, "encode.audio")).encode())
    assert isinstance(job, EncodeJob) and job.draft is not None
    assert (job.head.model, job.slot.pool, job.slot.encoder) == ("omni", "audio", "omni/audio")
    assert job.slot.offset <= len(job.draft.prompt_ids)
    offloaded = _example(page, "encode.audio", 1)["ref"]
    assert offloaded["size_bytes"] == len(codec.encode(job))


def test_the_headers_that_are_passed_on_are_described(page: Any) -> None:
    for message in page["components"]["messages"].values():
        if message["title"] != "DeadLetter":
            assert set(headers.PASSED_ON) <= set(message["headers"]["properties"])


def test_a_gateway_of_text_only_says_nothing_of_media() -> None:
    plain = Manifest("plain", Source("hf"), Limits(512))
    shown = json.loads(asyncapi.document(Settings(kafka="a:1,b:2"), [plain]))
    assert list(shown["channels"]) == ["generate.plain", "dead-letters"]
    assert "EncodeJob" not in shown["components"]["schemas"]
    assert [one["host"] for one in shown["servers"].values()] == ["a:1", "b:2"]


def _example(page: Any, topic: str, number: int = 0) -> Any:
    (reference,) = page["channels"][topic]["messages"].values()
    return page["components"]["messages"][reference["$ref"].rpartition("/")[2]]["examples"][number]["payload"]


def _read(topic: str, sample: Any) -> msgspec.Struct:
    """As a worker or an operator would, from JSON and from MessagePack alike."""
    if topic == names.DEAD_LETTERS:
        letter = msgspec.json.decode(json.dumps(sample), type=DeadLetter)
        assert codec.decode_letter(codec.encode(letter)) == letter
        return letter
    message = codec.decode_message(json.dumps(sample).encode())
    assert codec.decode_message(codec.encode(message)) == message
    return message
