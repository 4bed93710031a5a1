import ast
import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from gateway.asyncapi_page import AsyncApiPage, Trial
from infra.settings import Settings
from schemas.codec import decode_message
from schemas.jobs import Offloaded
from schemas.manifest import Decoder, Encoder, Limits, Manifest, Source
from topics import asyncapi

MODEL = Manifest(
    "omni",
    Source("hf"),
    Limits(512),
    encoders={"vision": Encoder("digits", "embeddings"), "audio": Encoder("whisper", "text")},
    decoders={"image": Decoder("digits"), "audio": Decoder("hibari", voices=("heart",))},
)
TRIAL = Trial("omni", 'Say "hi" & </pre>', (1, 2, 3))
HOSTILE = "<script>alert('x')</script> \"quoted\" `<img src=x>` & so on"
VOID = {"meta", "link", "tr", "th", "td", "dt", "dd", "li", "p", "html", "thead"}  # whose end HTML lets one leave out


class Page(HTMLParser):
    """What a browser would make of it: tags with their attributes, and the text of each `pre`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.samples: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "pre":
            self.samples.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "pre" in self._open:
            self.samples[-1] += data

    def all(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(attribute))]


@pytest.fixture(scope="module")
def document() -> bytes:
    return asyncapi.document(Settings(kafka="kafka-1:9092,kafka-2:9092"), [MODEL])


@pytest.fixture(scope="module")
def page(document: bytes) -> Page:
    return Page(AsyncApiPage(document, TRIAL).html)


def test_every_topic_and_every_type_of_the_document_has_its_place(document: bytes, page: Page) -> None:
    spec = json.loads(document)
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    assert set(spec["channels"]) <= set(ids)
    assert {f"type-{name}" for name in spec["components"]["schemas"]} <= set(ids)
    for channel in spec["channels"].values():
        assert channel["x-written-by"] in page.text and channel["x-read-by"] in page.text


def test_every_field_is_there_with_its_words(document: bytes, page: Page) -> None:
    for schema in json.loads(document)["components"]["schemas"].values():
        for name, one in schema["properties"].items():
            assert name in page.text
            assert one["description"].replace("`", "") in page.text


def test_links_within_the_page_lead_somewhere_and_others_stay_on_this_gateway(page: Page) -> None:
    links = page.all("href")
    ids = set(page.all("id"))
    assert {one[1:] for one in links if one.startswith("#")} <= ids
    assert {one for one in links if not one.startswith("#")} == {"/asyncapi.json", "/docs", "/", "data:,"}
    assert not page.all("src")


def test_the_samples_are_records_that_workers_can_read(page: Page) -> None:
    samples = [one for one in page.samples if one.startswith("{")]
    messages = [decode_message(one.encode()) for one in samples if '"dead"' not in one]
    assert [type(one).__name__ for one in messages if not isinstance(one, Offloaded)] == [
        "GenerateJob", "EncodeJob", "EncodeJob", "DecodeJob", "DecodeJob",
    ]  # fmt: skip
    assert len(samples) == len(messages) + 1


def test_the_script_is_python_and_says_what_was_asked_for(page: Page) -> None:
    script = ast.parse(page.samples[-1])
    said: dict[str, Any] = {}
    for one in script.body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            said[one.targets[0].id] = one.value
    assert ast.literal_eval(said["KAFKA"]) == "kafka-1:9092,kafka-2:9092"
    assert ast.literal_eval(said["PROMPT"]) == TRIAL.prompt
    assert ast.literal_eval(said["PROMPT_IDS"]) == [1, 2, 3]


def test_hostile_words_stay_words(document: bytes) -> None:
    spec = json.loads(document)
    job = spec["components"]["schemas"]["GenerateJob"]
    job["description"] = job["properties"]["prompt_ids"]["description"] = spec["info"]["description"] = HOSTILE
    job["properties"][HOSTILE] = {"enum": [HOSTILE], "description": HOSTILE}
    spec["channels"]["generate.omni"] |= {"x-written-by": HOSTILE, "x-read-by": HOSTILE, "address": HOSTILE}
    message = spec["components"]["messages"]["generate.omni:SubscribeMessage"]
    message["examples"][0]["payload"] = {HOSTILE: [HOSTILE]}
    message["headers"]["properties"] = {HOSTILE: {"description": HOSTILE}}
    shown = AsyncApiPage(json.dumps(spec).encode(), TRIAL).html
    page = Page(shown)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [one for _, attributes in page.tags for one in attributes if one.startswith("on")]
    assert html.escape("<script>", quote=False) in shown
    assert json.loads(next(one for one in page.samples if "alert" in one)) == {HOSTILE: [HOSTILE]}


def test_the_policy_lets_nothing_run_and_only_its_own_style_apply(document: bytes) -> None:
    made = AsyncApiPage(document, TRIAL)
    (style,) = re.findall("<style>(.*?)</style>", made.html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = made.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; ")
    assert "unsafe" not in policy and "script-src" not in policy
    assert not Page(made.html).all("style")
    assert not re.search(r"url\(|@import", style)
