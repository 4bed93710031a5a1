"""Why a request went where it went, when an encoder decided it; and what joins its records over all topics."""

import base64
import io
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from PIL import Image

from infra.settings import variable
from tests import services, stack
from tests.stack import Stack
from topics import names

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]

MODEL = "triptych-omni-tiny"
ENCODER, WORKERS = "encode-vision-0", ("llm-0", "llm-1")
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}
RULES = "You look at pictures of handwritten digits and answer in one word. " * 30


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two LLM workers and one encoder, which only take the time of real ones."""
    arguments = ["--model", MODEL, "--engine", "sim", "--workers", "2", "--media-engine", "sim"]
    home = tmp_path_factory.mktemp("sim")
    with stack.running(home, *arguments, "--worker-args", "--speedup 4", *services.broker_wish()) as one:
        yield one


@pytest.fixture
async def http(running: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.url, timeout=30) as client:
        yield client


async def ask(http: httpx.AsyncClient, picture: int, x_request_id: str) -> tuple[httpx.Response, dict[str, Any]]:
    """A question about a picture; its answer and its trail."""
    noise = np.random.default_rng(picture).integers(0, 256, (64, 64, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Which digit is this?"}]
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": content}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 4, "user": "somebody"}
    answer = await http.post("/v1/chat/completions", json=body, headers={"x-request-id": x_request_id, **TRACE})
    assert answer.status_code == 200, answer.text
    trail = await http.get(f"/v1/requests/{answer.headers['x-triptych-request-id']}")
    return answer, trail.json()


async def headers_of(running: Stack, topic: str, request_id: str, partitions: int = 12) -> list[dict[str, bytes]]:
    """Of the records of one request on a topic."""
    broker = running.environment(stack.GATEWAY)[variable("kafka")]
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, fetch_max_wait_ms=20)
    await consumer.start()
    try:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        ends, found = await consumer.end_offsets(tps), []
        for tp in tps:
            while await consumer.position(tp) < ends[tp]:
                records = (await consumer.getmany(tp, timeout_ms=200)).get(tp, [])
                found += [dict(one.headers) for one in records if one.key == request_id.encode()]
        return found
    finally:
        await consumer.stop()


async def test_an_encoder_that_sends_a_request_on_tells_its_gateway_why_it_went_there(
    running: Stack, http: httpx.AsyncClient
) -> None:
    _, first = await ask(http, 1, "first")
    assert first["media_encoded"] == 1
    assert first["steering"] == "cold"
    assert first["placed_worker"] == first["worker"]
    (other,) = first["alternatives"]
    assert other["worker"].rpartition(":")[0] != first["worker"]

    answer, second = await ask(http, 2, "second")  # another picture after the same rules
    assert second["media_encoded"] == 1
    assert second["steering"] in ("home", "stay")
    assert second["worker"] == first["worker"]
    assert second["predicted_cached_tokens"] > 200
    assert second["predicted_cached_tokens"] == second["cached_tokens"]
    assert answer.headers["x-triptych-steering"] == second["steering"]
    assert answer.headers["x-triptych-predicted-tokens"] == str(second["predicted_cached_tokens"])

    decided = "triptych_steering_decisions_total"
    assert running.metric(decided, ENCODER, reason="cold") == 1
    assert running.metric(decided, ENCODER) == 2
    assert running.metric(decided) == 0
    expected = second["predicted_cached_tokens"]
    assert sum(running.metric("triptych_predicted_cached_tokens_total", one) for one in WORKERS) == expected
    assert sum(running.metric("triptych_actual_cached_tokens_total", one) for one in WORKERS) == expected


async def test_records_of_one_request_can_be_joined_over_its_topics(running: Stack, http: httpx.AsyncClient) -> None:
    answer, _ = await ask(http, 3, "joined")
    request_id = answer.json()["id"]
    kept = {"x-request-id": b"joined"} | {name: value.encode() for name, value in TRACE.items()}
    (asked,) = await headers_of(running, names.encode("vision"), request_id)
    assert asked == kept | {"user": b"somebody"}
    (sent_on,) = await headers_of(running, names.generate(MODEL), request_id)
    assert sent_on == kept
