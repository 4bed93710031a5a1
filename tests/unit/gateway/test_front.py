"""What passes the framework by, and what does not."""

from typing import Any, cast

import pytest

from gateway.chat import PATH, Chat
from gateway.desk import Timeouts
from gateway.front import Front
from gateway.request_ids import Ids
from tests.unit.gateway.client import Client

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
LENGTH = (b"content-length", b"%d" % len(BODY))


class Seen:
    """Both ways a request may take."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.ways: list[str] = []
        self.fails = fails

    async def framework(self, scope: Any, receive: Any, send: Any) -> None:
        self.ways.append("framework")

    async def answer(self, request: Any, caller: Any, receive: Any, send: Any) -> None:
        self.ways.append("direct")
        if self.fails:
            raise self.fails


async def sent(seen: Seen, method: str, path: str, headers: list[tuple[bytes, bytes]], *pieces: Any) -> Client:
    client, arriving = Client(), iter(pieces)
    front = Front(seen.framework, cast(Chat, seen), Timeouts(30, 60), 1_000)
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers,
        "scheme": "http",
        "server": ("127.0.0.1", 8000),
        "state": {"ids": Ids("r")},
    }

    async def receive() -> Any:
        return next(arriving)

    await front(cast(Any, scope), receive, client.send)
    return client


def piece(body: bytes, more: bool = False) -> dict[str, object]:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize(
    ("method", "path", "headers", "way"),
    [
        ("POST", PATH, [LENGTH], "direct"),
        ("POST", PATH, [LENGTH, (b"origin", b"https://example.com")], "framework"),
        ("POST", PATH, [], "framework"),
        ("POST", PATH, [(b"content-length", b"1001")], "framework"),
        ("POST", PATH, [(b"content-length", b"-1")], "framework"),
        ("POST", PATH, [(b"content-length", "٣".encode())], "framework"),
        ("GET", PATH, [LENGTH], "framework"),
        ("OPTIONS", PATH, [LENGTH], "framework"),
        ("POST", PATH + "/", [LENGTH], "framework"),
        ("POST", "/v1/files", [LENGTH], "framework"),
    ],
)
async def test_only_a_body_of_known_size_from_no_browser_passes_by(
    method: str, path: str, headers: list[tuple[bytes, bytes]], way: str
) -> None:
    seen = Seen()
    await sent(seen, method, path, headers, piece(BODY))
    assert seen.ways == [way]


async def test_a_body_may_come_in_pieces() -> None:
    seen = Seen()
    await sent(seen, "POST", PATH, [LENGTH], piece(BODY[:10], more=True), piece(BODY[10:], more=True), piece(b""))
    assert seen.ways == ["direct"]


async def test_a_client_that_leaves_inside_its_body_has_asked_for_nothing() -> None:
    seen = Seen()
    client = await sent(seen, "POST", PATH, [LENGTH], piece(BODY[:10], more=True), {"type": "http.disconnect"})
    assert seen.ways == []
    assert '"code":"cancelled"' in client.body


async def test_what_nobody_foresaw_is_told_as_an_internal_error() -> None:
    client = await sent(Seen(ValueError("a bug")), "POST", PATH, [LENGTH], piece(BODY))
    assert client.written[0]["status"] == 500
    assert "a bug" not in client.body
