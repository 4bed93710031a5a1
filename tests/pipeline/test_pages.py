"""Everything but chat: models, health, metrics, documentation, request ids, CORS."""

import re
from typing import Any

import httpx
import openai
import pytest
from litestar import Litestar

from gateway import openapi
from gateway.asyncapi_page import PROMPT
from tests.pipeline.conftest import MODEL, Gateway, listening
from tests.pipeline.models import CASCADE, DRAWS, PLAIN
from tests.pipeline.scripted import WORKER, Run
from tests.waiting import until
from topics import names

POOLS = ["encode.vision", "encode.audio", "decode.audio", "decode.image"]


async def test_the_models_are_listed_and_found(gateway: Gateway) -> None:
    client = gateway.client()
    assert [model.id async for model in client.models.list()] == [MODEL, "tiny-cascade", "tiny-draws"]
    one = await client.models.retrieve(MODEL)
    assert (one.id, one.object, one.created, one.owned_by) == (MODEL, "model", 7, "triptych")
    assert one.model_extra == {
        "max_model_len": 600, "capabilities": ["chat", "json", "logprobs"], "handoff": None, "voices": [],
    }  # fmt: skip


async def test_a_model_says_what_it_can_do_and_that_its_stages_hand_on_text(gateway: Gateway) -> None:
    client = gateway.client()
    cascade = (await client.models.retrieve("tiny-cascade")).model_extra or {}
    assert cascade["handoff"] == "text"
    assert cascade["voices"] == ["heart", "sky"]
    assert {"speech_out", "transcription", "audio_in"} <= set(cascade["capabilities"])
    draws = (await client.models.retrieve("tiny-draws")).model_extra or {}
    assert draws["handoff"] is None


async def test_an_unknown_model_is_not_found(gateway: Gateway) -> None:
    client = gateway.client()
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody")


async def test_ready_says_what_is_not(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.health")
    async with gateway.http() as client:
        ready = await client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {
            "ready": True,
            "checks": {"bus": "ok", "redis": "ok", "store": "ok", f"model {MODEL}": "ok"},
            "pools": dict.fromkeys(POOLS, "ok: 1 worker"),
            "degraded": [],
        }
        gateway.broken.append("redis")
        gateway.leases.present = False
        await until(lambda: gateway.pools[MODEL].workers == 0)
        unready = await client.get("/readyz")
    assert unready.status_code == 503
    assert unready.json() == {
        "ready": False,
        "checks": {
            "bus": "ok",
            "redis": "does not answer",
            "store": "ok",
            f"model {MODEL}": "no LLM worker serves it",
        },
        "pools": dict.fromkeys(POOLS, "ok: 1 worker"),
        "degraded": [],
    }
    told = [one.getMessage() for one in caplog.records if one.name == "gateway.health"]
    assert told == ["readiness: redis does not answer: Unavailable: nobody there"]


async def test_a_pool_without_workers_is_named_and_does_not_make_the_gateway_unready(gateway: Gateway) -> None:
    await gateway.members.leave("encode.vision", WORKER.worker)
    await gateway.members.stay("decode.audio", "another")
    await gateway.media_pools.look()
    async with gateway.http() as client:
        answer = await client.get("/readyz")
        metrics = (await client.get("/metrics")).text
    assert (answer.status_code, answer.json()["ready"]) == (200, True)
    assert answer.json()["pools"]["encode.vision"] == "nobody works here"
    assert answer.json()["pools"]["decode.audio"] == "ok: 2 workers"
    assert answer.json()["degraded"] == ["encode.vision"]
    assert 'triptych_pool_workers{pool="encode.vision"} 0.0' in metrics
    assert 'triptych_pool_workers{pool="decode.audio"} 2.0' in metrics
    assert f'triptych_pool_workers{{pool="generate.{MODEL}"}} 1.0' in metrics


async def test_alive_says_so_even_when_nothing_else_is(gateway: Gateway) -> None:
    gateway.broken += ["bus", "redis"]
    async with gateway.http() as client:
        response = await client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "alive"})


async def test_metrics_count_answers_and_tokens(gateway: Gateway) -> None:
    await gateway.client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    async with gateway.http() as client:
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert 'triptych_requests_total{model="tiny",outcome="finished"} 1.0' in response.text
    assert 'triptych_tokens_total{kind="completion",model="tiny"} 3.0' in response.text
    assert 'triptych_ttft_seconds_count{model="tiny"} 1.0' in response.text


async def test_a_stream_that_fails_counts_as_failed(gateway: Gateway) -> None:
    async def script(run: Run) -> None:
        await run.say("Hel")
        await run.fail("engine_died")

    gateway.pool.script = script
    async with gateway.http() as client:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        await client.post("/v1/chat/completions", json=body)
        metrics = (await client.get("/metrics")).text
    assert 'triptych_requests_total{model="tiny",outcome="engine_died"} 1.0' in metrics
    assert 'outcome="finished"' not in metrics


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_pages_load_nothing_from_elsewhere(gateway: Gateway, path: str) -> None:
    async with gateway.http() as client:
        page = await client.get(path)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        links = re.findall(r'(?:src|href|url:) ?=?"([^"]+)"', page.text)
        assert links
        for link in links:
            assert link.startswith("/")
            assert (await client.get(link)).status_code == 200, link


async def test_the_topics_of_this_gateway_are_a_document_and_a_page(gateway: Gateway) -> None:
    async with gateway.http() as client:
        document, page = await client.get("/asyncapi.json"), await client.get("/asyncapi")
        links = set(re.findall(r'href="(/[^"]*)"', page.text))
        assert links and {(await client.get(one)).status_code for one in links} == {200}
    assert document.headers["content-type"] == "application/json"
    addresses = [one["address"] for one in document.json()["channels"].values()]
    assert addresses == [one.name for one in names.topics_for([PLAIN, CASCADE, DRAWS])]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert all(f'id="{one}"' in page.text for one in addresses)
    assert str(gateway.desk.models.get(MODEL).language.tokenize(PROMPT)) in page.text


async def test_the_documentation_describes_every_route_and_every_field(gateway: Gateway) -> None:
    async with gateway.http() as client:
        spec = (await client.get("/openapi.json")).json()
    assert spec == openapi.document()
    litestar: Any = gateway.app
    while not isinstance(litestar, Litestar):
        litestar = getattr(litestar, "_app", None) or litestar._framework  # what stands around it
    served = {
        (route.path_format, method.lower())
        for route in litestar.routes
        for method in getattr(route, "methods", ())
        if method != "OPTIONS" and not route.path_format.startswith("/docs")
    }
    documented = {(path, method) for path, operations in spec["paths"].items() for method in operations}
    for_people = {(path, "get") for path in ("/", "/openapi.json", "/asyncapi", "/asyncapi.json")}
    assert served - for_people == documented
    request = spec["components"]["schemas"]["ChatRequest"]
    assert request["properties"]["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}
    assert request["required"] == ["model", "messages"]


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/docs", "/v1/models/nobody", "/docs/assets/swagger-ui.css"])
async def test_every_response_has_a_request_id(gateway: Gateway, path: str) -> None:
    async with gateway.http() as client:
        first, second = await client.get(path), await client.get(path)
        own = await client.get(path, headers={"x-request-id": "my-id.1"})
        bad = await client.get(path, headers={"x-request-id": "not sane; at all"})
    assert re.fullmatch("[0-9a-f]{32}", first.headers["x-request-id"])
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert own.headers["x-request-id"] == "my-id.1"
    assert re.fullmatch("[0-9a-f]{32}", bad.headers["x-request-id"])


async def test_an_answer_has_the_request_id_too_and_its_own_id(gateway: Gateway) -> None:
    raw = await gateway.client().chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers.get_list("x-request-id") == ["mine"]
    assert raw.parse().id.startswith("chatcmpl-")


async def from_a_page(gateway: Gateway, origin: str) -> list[httpx.Response]:
    """What a browser asks for a page of that origin: a preflight, a list, something that is not there, a stream."""
    of_page = {"origin": origin}
    preflight = of_page | {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with gateway.http() as client:
        return [
            await client.options("/v1/chat/completions", headers=preflight),
            await client.get("/v1/models", headers=of_page),
            await client.get("/nowhere", headers=of_page),
            await client.post("/v1/chat/completions", json=body, headers=of_page),
        ]


async def test_pages_of_other_origins_may_not_read_what_is_answered(gateway: Gateway) -> None:
    for response in await from_a_page(gateway, "https://app.example"):
        assert [name for name in response.headers if name.startswith("access-control-")] == []


@pytest.mark.parametrize(("origins", "allowed"), [(["https://app.example"], "https://app.example"), (["*"], "*")])
async def test_pages_of_origins_that_are_set_may_ask(origins: list[str], allowed: str) -> None:
    async with listening(Gateway(cors_origins=origins)) as gateway:
        asked, *answers = await from_a_page(gateway, "https://app.example")
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == allowed
    assert "authorization" in asked.headers["access-control-allow-headers"]
    for response in answers:
        assert response.headers["access-control-allow-origin"] == allowed
        assert "x-request-id" in response.headers["access-control-expose-headers"]


async def test_pages_of_origins_that_are_not_set_may_not() -> None:
    async with listening(Gateway(cors_origins=["https://app.example"])) as gateway:
        for response in await from_a_page(gateway, "https://evil.example"):
            assert "access-control-allow-origin" not in response.headers


async def test_a_request_tells_what_became_of_it(gateway: Gateway) -> None:
    answer = await gateway.client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    async with gateway.http() as client:
        told = (await client.get(f"/v1/requests/{answer.id}")).json()
        missing = await client.get("/v1/requests/chatcmpl-none")
    assert told["outcome"] == "finished"
    assert (told["completion_tokens"], told["cached_tokens"], told["worker"]) == (3, 3, "worker-1")
    assert told["steering"] == "least_loaded"
    assert told["queue_s"] == 0.01
    assert told["ttft_s"] <= told["duration_s"]
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert missing.json()["error"]["message"].startswith("No request 'chatcmpl-none'")


async def test_a_refused_request_is_found_by_the_id_that_its_refusal_has(gateway: Gateway) -> None:
    too_long = {"model": MODEL, "messages": [{"role": "user", "content": "word " * 900}]}
    async with gateway.http() as client:
        refused = await client.post("/v1/chat/completions", json=too_long)
        told = (await client.get(f"/v1/requests/{refused.headers['x-request-id']}")).json()
        same = (await client.get(f"/v1/requests/{refused.headers['x-triptych-request-id']}")).json()
    assert refused.status_code == 400
    assert (told["outcome"], told["x_request_id"]) == ("context_length_exceeded", refused.headers["x-request-id"])
    assert same == told


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"messages": [{"role": "user", "content": "word " * 900}]}])
async def test_nobody_reads_a_trail_by_an_id_that_another_client_has_chosen(
    gateway: Gateway, more: dict[str, Any]
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **more}
    own = {"x-request-id": "order-7"}
    async with gateway.http() as client:
        answers = [await client.post("/v1/chat/completions", json=body, headers=own) for _ in range(2)]
        guessed = await client.get("/v1/requests/order-7")
        told = [await client.get(f"/v1/requests/{one.headers['x-triptych-request-id']}") for one in answers]
    assert guessed.status_code == 404
    assert [one.headers["x-request-id"] for one in answers] == ["order-7", "order-7"]
    assert [one.json()["x_request_id"] for one in told] == ["order-7", "order-7"]
    assert told[0].json()["id"] != told[1].json()["id"]


async def test_what_asks_for_no_work_has_no_id_of_it(gateway: Gateway) -> None:
    async with gateway.http() as client:
        assert "x-triptych-request-id" not in (await client.get("/v1/models")).headers
