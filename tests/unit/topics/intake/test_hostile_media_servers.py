"""Web servers that lie, dawdle, flood, redirect to us or change their address: each is left in time, and named."""

import asyncio
import errno
import gzip
import ipaddress
import ssl
import time
from pathlib import Path

import aiohttp
import pytest

from schemas.errors import Code
from tests.unit.topics.intake.desk import LIMITS, OK, PNG, TIMEOUT_S, WAV, Desk, trusting_the_usual
from tests.unit.topics.intake.servers import Answer, Web, dripping, page, raw, redirect
from topics.intake import fetch

SERVED: dict[str, tuple[Answer, Code]] = {
    "not found": (page(PNG, status="404 Not Found"), "media_unreachable"),
    "failing": (page(b"Traceback: secret", status="500 Internal Server Error"), "media_unreachable"),
    "part of it": (page(PNG, status="206 Partial Content"), "media_unreachable"),
    "no content": (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), "media_unreachable"),
    "redirect to nowhere": (page(b"", status="302 Found"), "media_unreachable"),
    "0 bytes": (page(b""), "media_unreadable"),
    "web page": (page(b"<!doctype html><p>Please log in", "content-type: image/png"), "media_type_unsupported"),
    "SVG": (
        page(b'<svg xmlns="http://www.w3.org/2000/svg"/>', "content-type: image/svg+xml"),
        "media_type_unsupported",
    ),
    "sound": (page(WAV, "content-type: image/png"), "media_type_unsupported"),
    "declared too large": (raw(OK + b"content-length: 200001\r\n\r\n"), "media_too_large"),
    "declared absurdly large": (
        raw(OK + b"content-length: 99999999999999999999999\r\n\r\n" + PNG),
        "media_unreachable",
    ),
    "negative length": (raw(OK + b"content-length: -5\r\n\r\n" + PNG), "media_unreachable"),
    "two lengths": (raw(OK + b"content-length: 5\r\ncontent-length: 900\r\n\r\n" + PNG), "media_unreachable"),
    "shorter than declared": (raw(OK + b"content-length: 90000\r\n\r\n" + PNG), "media_unreadable"),
    "broken chunks": (raw(OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + PNG), "media_unreachable"),
    "endless": (dripping(OK + b"\r\n" + PNG, bytes(50_000), 0), "media_too_large"),
    "endless chunks": (
        dripping(OK + b"transfer-encoding: chunked\r\n\r\n", b"4000\r\n" + PNG.ljust(0x4000) + b"\r\n", 0),
        "media_too_large",
    ),
    "slow body": (dripping(OK + b"content-length: 5000\r\n\r\n" + PNG, b".", 0.05), "media_unreachable"),
    "slow head": (dripping(OK, b"x-more: 1\r\n", 0.05), "media_unreachable"),
    "silent": (dripping(b"", b"", 60), "media_unreachable"),
    "endless head": (dripping(OK, b"x-more: 1\r\n" * 1_000, 0), "media_unreachable"),
    "long head line": (raw(OK + b"x-long: " + b"a" * 100_000 + b"\r\n\r\n"), "media_unreachable"),
    "hangs up": (raw(b""), "media_unreachable"),
    "another protocol": (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "media_unreachable"),
    "gzip bomb": (page(gzip.compress(PNG + bytes(50_000_000)), "content-encoding: gzip"), "media_refused"),
    "unknown encoding": (page(PNG, "content-encoding: br"), "media_refused"),
    "redirect loop": (redirect("/hostile"), "media_refused"),
    "redirect to metadata": (redirect("http://169.254.169.254/latest/meta-data/"), "media_refused"),
    "redirect to metadata by name": (redirect("http://metadata.test/"), "media_refused"),
    "redirect to loopback": (redirect("http://127.0.0.1:6379/"), "media_refused"),
    "redirect to IPv6 mapped": (redirect("http://[::ffff:169.254.169.254]/"), "media_refused"),
    "redirect to decimal": (redirect("http://2852039166/"), "media_refused"),
    "redirect to a file": (redirect("file:///etc/passwd"), "media_refused"),
    "redirect to data": (redirect("data:image/png;base64,iVBORw0KGgo="), "media_refused"),
    "redirect with a password": (redirect("http://user:secret@93.184.215.14/"), "media_refused"),
    "redirect beyond Latin-1": (raw(b"HTTP/1.1 302 Found\r\nlocation: http://\xff\xfe/\r\n\r\n"), "media_refused"),
    "permanent redirect to loopback": (redirect("http://127.0.0.1:9/", "308 Permanent Redirect"), "media_refused"),
}


@pytest.mark.parametrize(("answer", "code"), SERVED.values(), ids=SERVED.keys())
async def test_server_that_misbehaves_is_left_in_time(answer: Answer, code: Code) -> None:
    async with Web({"/hostile": answer}).listening() as web:
        desk = Desk([f"127.0.0.1:{web.port}"], {"metadata.test": [["169.254.169.254"]]})
        began_s = time.monotonic()
        error = await desk.refusal(f"{web.url}/hostile")
        assert error.code == code
        assert time.monotonic() - began_s < TIMEOUT_S + 2


async def test_one_deadline_covers_all_hops() -> None:
    async def late(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(TIMEOUT_S * 0.7)
        await redirect("/late2" if len(web.asked) == 1 else "/end")(writer)

    async with Web({"/late": late, "/late2": late, "/end": page(PNG)}).listening() as web:
        desk = Desk([f"127.0.0.1:{web.port}"])
        began_s = time.monotonic()
        assert (await desk.refusal(f"{web.url}/late")).code == "media_unreachable"
        assert time.monotonic() - began_s < TIMEOUT_S * 1.4
        assert len(web.asked) == 2


async def test_name_that_changes_its_answer_changes_nothing() -> None:
    async with (
        Web({"/a": page(PNG)}).listening() as good,
        Web({"/a": page(WAV)}, "127.0.0.2").listening(good.port) as bad,
    ):
        desk = Desk([f"rebind.test:{good.port}"], {"rebind.test": [["127.0.0.1"], ["127.0.0.2"]]})
        taken = await desk.take(f"http://rebind.test:{good.port}/a")
        assert taken.blob.media_type == "image/png"
        assert desk.names.asked == ["rebind.test"]
        assert bad.asked == []


async def test_name_that_turns_private_between_two_hops_is_refused_at_the_second() -> None:
    async with Web({"/a": page(PNG)}).listening() as web:
        web.paths["/start"] = redirect(f"http://other.test:{web.port}/a")
        desk = Desk([f"start.test:{web.port}"], {"start.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]})
        assert (await desk.refusal(f"http://start.test:{web.port}/start")).code == "media_refused"
        assert len(web.asked) == 1


async def test_connection_can_only_go_where_was_checked() -> None:
    connector = fetch._pinned([ipaddress.ip_address("127.0.0.1")], trusting_the_usual())
    async with connector, aiohttp.ClientSession(connector=connector) as session:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await session.get("http://127.0.0.2:9/")
    assert caught.value.errno == errno.EPERM


async def test_certificate_that_nobody_trusts_is_refused() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(Path(__file__).parents[3] / "data" / "untrusted.pem")
    async with Web({"/a": page(PNG)}).listening(tls=tls) as web:
        desk = Desk([f"127.0.0.1:{web.port}"])
        error = await desk.refusal(f"https://127.0.0.1:{web.port}/a")
        assert (error.code, "certificate" in error.message) == ("media_unreachable", True)
        assert web.asked == []


async def test_nobody_listening_is_said_without_the_address(unused_tcp_port: int) -> None:
    desk = Desk([f"127.0.0.1:{unused_tcp_port}"])
    assert (await desk.refusal(f"http://127.0.0.1:{unused_tcp_port}/a")).code == "media_unreachable"


async def test_nothing_of_one_hop_goes_along_to_the_next(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_tcp_port}")
    async with Web({"/a": redirect("/b?x=1"), "/b": page(PNG)}).listening() as web:
        await Desk([f"127.0.0.1:{web.port}"]).take(f"{web.url}/a")
        for head in web.asked:
            names = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:] if line}
            assert names == {"host", "accept", "accept-encoding", "user-agent", "connection"}
            assert "accept-encoding: identity" in head.lower()


@pytest.mark.parametrize(
    "path",
    ["/get?sig=a%2Fb%2B&x=1%202", "/get", "/g%C3%A9t.mp3?name=x.exe", "/\u00e9.gif"],
    ids=["signed", "bare", "wrong extension", "raw"],
)
async def test_url_of_any_look_works_and_reaches_the_server_as_it_was_written(path: str) -> None:
    plain = page(PNG, "content-type: application/octet-stream")
    async with Web({"/get": plain, "/g%C3%A9t.mp3": plain, "/%C3%A9.gif": plain}).listening() as web:
        taken = await Desk([f"127.0.0.1:{web.port}"]).take(web.url + path)
        assert (taken.kind, taken.blob.media_type, taken.blob.size_bytes) == ("image", "image/png", len(PNG))
        if path.isascii():
            assert web.asked[0].startswith(f"GET {path} HTTP/1.1\r\n")


async def test_body_exactly_at_the_limit_is_taken() -> None:
    data = PNG.ljust(LIMITS.item_bytes, b"\0")
    async with Web({"/a": page(data), "/b": page(data + b"!")}).listening() as web:
        desk = Desk([f"127.0.0.1:{web.port}"])
        assert (await desk.refusal(f"{web.url}/b")).code == "media_too_large"
        assert (await desk.take(f"{web.url}/a")).blob.size_bytes == LIMITS.item_bytes
