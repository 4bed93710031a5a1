import json
import re
from typing import Any

import pytest

from infra.settings import Settings
from schemas.manifest import Decoder, Encoder, Limits, Manifest, Source
from topics import asyncapi, names

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
