"""What strangers send, at a real gateway and its encoders, while somebody else's answer streams through the same."""

import asyncio
import base64
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.stack import ROOT, Stack, another_gateway
from tests.unit.topics.intake.desk import TELLTALE
from tests.unit.topics.intake.servers import Web, redirect
from tests.unit.topics.intake.test_hostile_media_servers import SERVED
from tests.unit.topics.intake.test_hostile_media_urls import REFUSED_URLS
from tests.unit.workers.media.test_hostile import INTERNALS, PICTURES, RECORDINGS
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.vllm, pytest.mark.timeout(400)]

SEES_AND_HEARS = "smollm2-cascade"
AT_ONCE = 6
FETCH_S = 2
# On two cores, which all the models share: a token is some 50 ms, and what strangers send has to be decoded somewhere.
MOST_GAP_S = 2.0
# Of those servers, the ones whose fault does not depend on how much is taken.
DAWDLING = ("slow body", "slow head", "silent", "endless head", "hangs up", "another protocol", "shorter than declared")
LYING = ("web page", "sound", "gzip bomb", "redirect to a file", "redirect with a password")
TO_US = ("redirect to metadata", "redirect to loopback", "redirect to IPv6 mapped", "redirect to decimal")

Content = dict[str, Any]


def picture(url: str) -> Content:
    return {"type": "image_url", "image_url": {"url": url}}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def inline() -> dict[str, tuple[Content, str]]:
    """By name: an item, and the code of its refusal."""
    pictures = {
        f"picture: {name}": (picture(f"data:image/png;base64,{b64(file)}"), code)
        for name, (file, code) in PICTURES.items()
    }
    recordings = {
        f"sound: {name}": ({"type": "input_audio", "input_audio": {"data": b64(file), "format": "wav"}}, code)
        for name, (file, code) in RECORDINGS.items()
    }
    films = {
        f"video: {name}": ({"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{b64(file)}"}}, code)
        for name, (file, code) in RECORDINGS.items()
        if name in ("half an mp4", "mp4 header alone", "matroska header alone", "playlist that names a file")
    }
    return pictures | recordings | films


def links(web: Web) -> dict[str, tuple[Content, str]]:
    """URLs of no good, and one of each server of no good. Names of the domain test are for made-up name servers."""
    urls = {
        # Without a colon it is taken for base64.
        f"url: {name}": (picture(url), "media_refused" if ":" in url else "media_unreadable")
        for name, url in REFUSED_URLS.items()
        if url and ".test" not in url
    }
    servers: dict[str, tuple[Content, str]] = {"server: redirect loop": (picture(f"{web.url}/loop"), "media_refused")}
    web.paths["/loop"] = redirect("/loop")
    for number, name in enumerate([*DAWDLING, *LYING, *TO_US]):
        web.paths[f"/{number}"], code = SERVED[name]
        servers[f"server: {name}"] = picture(f"{web.url}/{number}"), code
    return urls | servers


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web({}).listening() as one:
        yield one


async def test_every_stranger_is_refused_in_words_and_a_stream_beside_them_goes_on(stack: Stack, web: Web) -> None:
    cases = {name: (request(item), code) for name, (item, code) in {**links(web), **inline()}.items()}
    assert len(cases) > 100
    settings = {
        "media_allow_http": "true",
        "media_allow_hosts": f"127.0.0.1:{web.port}",
        "media_fetch_timeout_s": str(FETCH_S),
    }
    with another_gateway(stack, **settings) as url:
        async with streaming(url) as times, httpx.AsyncClient(base_url=url, timeout=60) as http:
            await until(lambda: len(times) > 3, within_s=60)
            began_s = time.monotonic()
            wrong = await all_refused(http, cases)
            over_s = time.monotonic()
            await until(lambda: times[-1] > over_s, within_s=20)  # it goes on after them
    assert wrong == {}
    gap_s = max(later - earlier for earlier, later in itertools.pairwise(times) if later > began_s)
    print(f"{len(cases)} strangers in {over_s - began_s:.1f} s; the longest gap in the stream: {gap_s:.2f} s")
    assert gap_s < MOST_GAP_S


def request(item: Content) -> bytes:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Look."}, item]}]
    return json.dumps({"model": SEES_AND_HEARS, "messages": messages}).encode()


@asynccontextmanager
async def streaming(url: str) -> AsyncIterator[list[float]]:
    """Somebody else's answer: when its pieces came, in monotonic seconds."""
    times: list[float] = []
    command = [sys.executable, "-m", "tests.e2e.stream_reader", url]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None

    async def collect(lines: asyncio.StreamReader) -> None:
        async for line in lines:
            times.append(float(line))

    collecting = asyncio.create_task(collect(process.stdout))
    try:
        yield times
        assert not collecting.done(), "the stream has ended early"
    finally:
        process.terminate()
        await process.wait()
        await collecting


async def all_refused(http: httpx.AsyncClient, cases: Mapping[str, tuple[bytes, str]]) -> dict[str, str]:
    """By name, what was wrong with an answer."""
    turns, wrong = asyncio.Semaphore(AT_ONCE), {}

    async def refused(name: str, body: bytes, code: str) -> None:
        async with turns:
            answer = await http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
        error = answer.json().get("error", {})
        param = str(error.get("param"))
        words = str(error.get("message", "")).replace(param, "")
        if (answer.status_code, error.get("code")) != (400, code) or not param.startswith("messages[0].content[1]"):
            wrong[name] = f"{answer.status_code} {answer.text[:300]}"
        elif not words or TELLTALE.search(words) or INTERNALS.search(words):
            wrong[name] = f"tells too much: {words}"

    await asyncio.gather(*(refused(name, body, code) for name, (body, code) in cases.items()))
    return wrong
