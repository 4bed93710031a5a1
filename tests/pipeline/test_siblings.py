"""Two gateways of one port, asked on that port, whichever of them answers."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest

from gateway.server import listen
from gateway.siblings import Siblings
from tests.pipeline.conftest import MODEL, Gateway, listening

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


def port_of(gateway: Gateway) -> int:
    port = httpx.URL(gateway.url).port
    assert port is not None
    return port


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Gateway, Gateway]]:
    """The first as a client sees it; what the second has listened on is its private port."""
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(listening(Gateway()))
        first = Gateway(siblings=Siblings("gw-0", 1, {"gw-1": port_of(second)}))
        yield await stack.enter_async_context(listening(first)), second


async def test_metrics_of_both_are_on_one_page(pair: tuple[Gateway, Gateway]) -> None:
    first, second = pair
    async with first.http() as to_first, second.http() as to_second:
        await to_second.post("/v1/chat/completions", json=BODY)
        both, own = (await to_first.get("/metrics")).text, (await to_second.get("/metrics")).text
    answered = f'triptych_requests_total{{%smodel="{MODEL}",outcome="finished"}} 1.0'
    assert answered % 'gateway="gw-1",' in both
    assert answered % "" in own
    assert 'triptych_gateway_up{gateway="gw-0"} 1' in both
    assert 'triptych_gateway_up{gateway="gw-1"} 1' in both
    assert "gateway=" not in own


async def test_a_trail_is_found_whoever_has_it(pair: tuple[Gateway, Gateway]) -> None:
    first, second = pair
    async with first.http() as to_first, second.http() as to_second:
        answer = (await to_second.post("/v1/chat/completions", json=BODY)).json()
        told, direct = [await one.get(f"/v1/requests/{answer['id']}") for one in (to_first, to_second)]
        missing = await to_first.get("/v1/requests/chatcmpl-none%2F..%3Fx")
    assert told.json() == direct.json()
    assert told.json()["id"] == answer["id"]
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")


async def test_one_that_is_dead_or_hangs_is_told_as_down_and_holds_nobody_up() -> None:
    with listen("127.0.0.1", 0) as dead, listen("127.0.0.1", 0) as hangs:
        hangs.listen()
        others = {"dead": dead.getsockname()[1], "hangs": hangs.getsockname()[1]}
        async with listening(Gateway(siblings=Siblings("gw-0", 1, others))) as gateway, gateway.http() as client:
            page = (await client.get("/metrics")).text
            missing = await client.get("/v1/requests/chatcmpl-none")
    for name, up in (("gw-0", 1), ("dead", 0), ("hangs", 0)):
        assert f'triptych_gateway_up{{gateway="{name}"}} {up}' in page
    assert missing.status_code == 404


async def test_what_comes_in_on_the_private_port_is_about_this_gateway_alone() -> None:
    siblings = Siblings("gw-0", 8_001, {"gw-1": 1})
    scope = {"type": "http", "server": ("127.0.0.1", 8_001)}
    assert not siblings.answer_for(scope)  # type: ignore[arg-type]  # the part of a scope that matters here
    assert siblings.answer_for(scope | {"server": ("127.0.0.1", 8_000)})  # type: ignore[arg-type]  # as above
    assert not Siblings().answer_for(scope)  # type: ignore[arg-type]  # as above
