"""Chat completions that pass the framework by are answered as those that go through it, which a browser's do."""

import json
from typing import Any

import httpx
import pytest

from tests.pipeline.conftest import MODEL, Gateway, listening

HELLO = [{"role": "user", "content": "Say hello."}]
GOOD: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 3}
# Of one answer, or of a browser's alone.
OWN_HEADERS = {"date", "x-request-id", "x-triptych-request-id", "openai-processing-ms", "vary"}
OWN_FIELDS = {"id", "created"}


async def told(gateway: Gateway, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], list[Any]]:
    async with gateway.http() as client:
        response = await client.post("/v1/chat/completions", content=body, headers=headers)
    names = {
        name: value
        for name, value in response.headers.items()
        if name not in OWN_HEADERS and not name.startswith("access-control-")
    }
    if "content-length" in names and response.status_code == 200:
        del names["content-length"]  # partitions are chosen in turn, and have one digit or two
        names = {name: value for name, value in names.items() if name != "x-triptych-partition"}
    return response.status_code, names, [_without_own(text) for text in _documents(response)]


def _documents(response: httpx.Response) -> list[str]:
    lines = response.text.split("\n\n")
    return [line.removeprefix("data: ") for line in lines if line and line != "data: [DONE]"]


def _without_own(text: str) -> Any:
    return {name: value for name, value in json.loads(text).items() if name not in OWN_FIELDS}


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(GOOD).encode(), {}),
        (json.dumps({**GOOD, "stream": True}).encode(), {}),
        (json.dumps({**GOOD, "stream": True, "stream_options": {"include_usage": True}}).encode(), {}),
        (json.dumps({**GOOD, "model": "nobody"}).encode(), {}),
        (json.dumps({**GOOD, "temperature": 9}).encode(), {}),
        (json.dumps({**GOOD, "max_tokens": 10_000}).encode(), {}),
        (b'{"model":', {}),
        (b"", {}),
        (b"a=b", {"content-type": "application/x-www-form-urlencoded"}),
        (b" " * (1 << 20) + b"{}", {}),
        (json.dumps(GOOD).encode(), {"x-request-timeout-s": "soon"}),
    ],
)
async def test_the_answer_is_that_of_the_framework(gateway: Gateway, body: bytes, headers: dict[str, str]) -> None:
    headers = {"content-type": "application/json", **headers}
    direct = await told(gateway, body, headers)
    assert direct == await told(gateway, body, {**headers, "origin": "https://example.com"})
    assert len(direct[2]) >= 1


async def test_a_browsers_answer_bears_cors_headers_and_every_answer_its_request_id() -> None:
    async with listening(Gateway(cors_origins=["*"])) as gateway, gateway.http() as client:
        for headers in ({}, {"origin": "https://example.com"}):
            response = await client.post("/v1/chat/completions", json=GOOD, headers={**headers, "x-request-id": "mine"})
            assert response.headers["x-request-id"] == "mine"
            assert ("access-control-allow-origin" in response.headers) == ("origin" in headers)
