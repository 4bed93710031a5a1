"""A place and bytes for every body, before it is read, and back again however the request ends."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.admission import SMALL_BYTES, STREAMED_BYTES, Admission, BodyRoom, largest
from gateway.exchange import OpenRequests
from schemas.errors import TriptychError

MIB = 1 << 20
FORM = (b"content-type", b"Multipart/Form-Data; boundary=x")


class Edge:
    """Requests under way at once; each reads its body and waits until it is told to end."""

    def __init__(self, most_bytes: int = 64 * MIB, most_open: int = 8) -> None:
        self.room = BodyRoom(most_bytes)
        self.open = OpenRequests(most_open)
        self.seen: list[tuple[int, int]] = []  # open requests and held bytes, after each piece
        self.fails = False

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            self.seen.append((len(self.open), self.room.held_bytes))
        self.seen.append((len(self.open), self.room.held_bytes))
        if self.fails:
            raise RuntimeError

    async def request(
        self,
        pieces: Sequence[bytes] = (b"",),
        *headers: tuple[bytes, bytes],
        path: str = "/v1/chat/completions",
        method: str = "POST",
    ) -> list[tuple[int, int]]:
        """What was seen while it was read."""
        left = list(pieces)

        async def receive() -> Any:
            piece = left.pop(0) if left else b""
            return {"type": "http.request", "body": piece, "more_body": bool(left)}

        async def send(_: Any) -> None: ...

        self.seen = []
        scope: Any = {"type": "http", "method": method, "path": path, "headers": list(headers)}
        await Admission(self.app, self.open, self.room, ["/v1/files"], "/v1/uploads/")(scope, receive, send)
        return self.seen


def length(size_bytes: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % size_bytes


def nothing_is_held(edge: Edge) -> bool:
    return (len(edge.open), edge.room.held_bytes) == (0, 0)


async def test_a_body_that_says_its_length_is_counted_before_it_comes() -> None:
    edge = Edge()
    assert await edge.request([b"a", b"b"], length(5 * MIB)) == [(1, 5 * MIB)] * 2
    assert nothing_is_held(edge)


async def test_a_body_that_does_not_is_counted_as_it_comes() -> None:
    edge = Edge()
    assert await edge.request([b"a" * 7, b"b" * 5]) == [(1, 7), (1, 12)]
    assert nothing_is_held(edge)


@pytest.mark.parametrize("path", ["/v1/files", "/v1/files/"])
async def test_of_a_form_that_is_stored_as_it_comes_what_is_held_counts(path: str) -> None:
    edge = Edge()
    assert await edge.request([b""], FORM, length(500 * MIB), path=path) == [(1, STREAMED_BYTES)]
    assert await edge.request([b"a" * 6 * MIB] * 3, FORM, path=path) == [
        (1, 6 * MIB), (1, STREAMED_BYTES), (1, STREAMED_BYTES),
    ]  # fmt: skip
    assert await edge.request([b""], FORM, length(9), path=path) == [(1, 9)]
    assert nothing_is_held(edge)


async def test_of_an_upload_that_is_stored_as_it_comes_what_is_held_counts() -> None:
    edge = Edge()
    assert await edge.request([b""], length(500 * MIB), path="/v1/uploads/token") == [(1, STREAMED_BYTES)]
    assert nothing_is_held(edge)


@pytest.mark.parametrize(("path", "header"), [("/v1/chat/completions", FORM), ("/v1/files", length(1))])
async def test_everywhere_else_all_of_it_counts(path: str, header: tuple[bytes, bytes]) -> None:
    assert await Edge().request([b""], header, length(40 * MIB), path=path) == [(1, 40 * MIB)]


@pytest.mark.parametrize("announced", [True, False])
async def test_past_the_room_bodies_are_told_to_come_back(announced: bool) -> None:
    edge = Edge(8 * MIB)
    headers = [length(5 * MIB)] if announced else []
    edge.room.take(4 * MIB, 4 * MIB)
    with pytest.raises(TriptychError) as raised:
        await edge.request([b"a" * MIB] * 5, *headers)
    assert (raised.value.code, raised.value.retry_after_s) == ("rate_limited", 1)
    assert edge.seen == ([] if announced else [(1, 5 * MIB), (1, 6 * MIB)])
    assert (len(edge.open), edge.room.held_bytes) == (0, 4 * MIB)


async def test_large_bodies_leave_room_for_small_ones() -> None:
    edge = Edge(8 * MIB)
    edge.room.take(largest(8 * MIB), largest(8 * MIB))
    with pytest.raises(TriptychError):
        await edge.request([b""], length(SMALL_BYTES + 1))
    assert await edge.request([b""], length(SMALL_BYTES)) == [(1, 7 * MIB)]


async def test_without_a_place_nothing_is_read() -> None:
    edge = Edge(most_open=1)
    edge.open.enter()
    with pytest.raises(TriptychError) as raised:
        await edge.request([b"a"], length(1))
    assert (raised.value.code, raised.value.retry_after_s, edge.seen) == ("rate_limited", 1, [])
    edge.open.leave()
    assert await edge.request([b"a"], length(1)) == [(1, 1)]


async def test_what_has_no_body_takes_no_place() -> None:
    assert await Edge().request(method="GET") == [(0, 0)]


async def test_a_request_that_fails_gives_everything_back() -> None:
    edge = Edge()
    edge.fails = True
    with pytest.raises(RuntimeError):
        await edge.request([b"a"], length(1))
    assert nothing_is_held(edge)
