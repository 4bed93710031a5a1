"""What strangers may put where a media item belongs: each is refused by name, in words that tell nothing about us."""

import asyncio
import base64
import errno
import functools
import gzip
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest

from infra.clock import ManualClock
from infra.file_records import MemoryFileRecords
from infra.memory import MemoryBlobs
from schemas.errors import FAULTS, Code, TriptychError
from schemas.manifest import MediaLimits
from schemas.media import MediaKind
from tests.unit.topics.intake.servers import Answer, Names, Web, dripping, page, raw, redirect
from tests.waiting import until
from topics.intake import fetch
from topics.intake.fetch import Fetcher, FetchLimits
from topics.intake.inline import INLINE_CHARS
from topics.intake.intake import Inline, Intake, Item, Link, Source, Taken, Uploaded, source_of
from topics.intake.places import Places
from topics.intake.resolve import SystemResolver
from topics.intake.uploads import UploadLimits, Uploads

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
WAV = b"RIFF\0\0\0\0WAVEfmt " + bytes(100)
PARAM = "messages[3].content[1].image_url"
LIMITS = MediaLimits(items=4, item_bytes=200_000)
TIMEOUT_S = 0.6
OK = b"HTTP/1.1 200 OK\r\n"

# What none of our words may hold: addresses, ports, paths, names of ours and of the libraries we use, their errors.
TELLTALE = re.compile(
    r"\d+\.\d+\.\d+\.\d+|::|:\d{2,}|(?<!image)(?<!audio)/\w|Traceback|Errno|aiohttp|yarl|Error\b|0x|secret|\.test\b|"
    r"media/|staging|object store"
)


@functools.cache
def trusting_the_usual() -> ssl.SSLContext:
    """As the settings make it; reading all the certificates takes 0.1 s."""
    return ssl.create_default_context()


class Desk:
    """An intake that may go to one local server, and its parts."""

    def __init__(
        self, allowed: Sequence[str], names: Mapping[str, Sequence[Sequence[str]]] | None = None, slots: int = 8
    ) -> None:
        clock = ManualClock()
        self.blobs = MemoryBlobs()
        self.names = Names(names or {})
        self.uploads = Uploads(self.blobs, MemoryFileRecords(clock), clock, UploadLimits(100_000, 60, 5, 8))
        limits = FetchLimits(TIMEOUT_S, max_redirects=3, concurrency=slots)
        self.fetcher = Fetcher(Places(True, allowed), self.names, limits, trusting_the_usual())
        self.intake = Intake(self.blobs, self.fetcher, self.uploads)

    async def take(self, source: Source | str, kind: MediaKind | None = "image") -> Taken:
        source = Link(source) if isinstance(source, str) else source
        [taken] = await self.intake.take([Item(kind, source, PARAM)], LIMITS)
        return taken

    async def refusal(self, source: Source | str, kind: MediaKind | None = "image") -> TriptychError:
        """The refusal, checked for what every one of them must be; nothing may have been stored."""
        with pytest.raises(TriptychError) as caught:
            await self.take(source, kind)
        error = caught.value
        assert FAULTS[error.code].status in (400, 404)
        assert error.param == PARAM
        assert PARAM in error.message
        assert not TELLTALE.search(error.message.replace(PARAM, "")), error.message
        assert self.blobs._objects == {}
        return error


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """One that may go nowhere private, with a name server that knows the wrong things."""
    yield Desk(
        [],
        {
            "loopback.test": [["127.0.0.1"]],
            "metadata.test": [["169.254.169.254"]],
            "both.test": [["93.184.215.14", "10.0.0.7"]],
            "mapped.test": [["::ffff:10.0.0.7"]],
            "link-local.test": [["fe80::1%1"]],
        },
    )


REFUSED_URLS = {
    "file": "file:///etc/passwd",
    "gopher": "gopher://93.184.215.14:70/_GET",
    "ftp": "ftp://93.184.215.14/a.png",
    "javascript": "javascript:alert(1)",
    "scheme inside a scheme": "jar:http://93.184.215.14/a.jar!/b.png",
    "no scheme": "//93.184.215.14/a.png",
    "nothing": "",
    "no host": "http:///a.png",
    "loopback": "http://127.0.0.1/a.png",
    "loopback, by name": "http://loopback.test/a.png",
    "another loopback": "http://127.9.9.9/",
    "this machine": "http://0.0.0.0/",
    "private": "http://10.0.0.7/a.png",
    "private, class B": "http://172.20.1.1/",
    "private, class C": "http://192.168.1.1/",
    "carrier": "http://100.100.100.200/latest/meta-data",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata, by name": "http://metadata.test/latest/meta-data/",
    "metadata at a public address": "http://168.63.129.16/machine",
    "multicast": "http://224.0.0.1/",
    "broadcast": "http://255.255.255.255/",
    "decimal": "http://2130706433/",
    "octal": "http://0177.0.0.1/",
    "hex": "http://0x7f000001/",
    "hex in parts": "http://0x7f.0.0.1/",
    "short": "http://127.1/",
    "zero": "http://0/",
    "trailing dot": "http://127.0.0.1./",
    "full-width digits": "http://\uff11\uff12\uff17.0.0.1/",
    "circled digits": "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/",
    "escaped": "http://127%2e0.0.1/",
    "IPv6 loopback": "http://[::1]/",
    "IPv6 unspecified": "http://[::]/",
    "IPv6 mapped": "http://[::ffff:127.0.0.1]/",
    "IPv6 mapped, hex": "http://[::ffff:a00:7]/",
    "IPv6 mapped, by name": "http://mapped.test/",
    "IPv4-compatible": "http://[::127.0.0.1]/",
    "NAT64 of a private one": "http://[64:ff9b::a9fe:a9fe]/",
    "6to4 of a private one": "http://[2002:7f00:1::1]/",
    "Teredo": "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "unique local": "http://[fd00:ec2::254]/",
    "link-local": "http://[fe80::1]/",
    "zone": "http://[fe80::1%25eth0]/",
    "zone, by name": "http://link-local.test/",
    "IPv6 multicast": "http://[ff02::1]/",
    "one public and one private address": "http://both.test/",
    "no such name": "http://nowhere.test/",
    "user": "http://user@93.184.215.14/",
    "password": "http://user:secret@93.184.215.14/",
    "host as user": "http://93.184.215.14@127.0.0.1/",
    "backslash": "http://93.184.215.14\\@127.0.0.1/",
    "line break": "http://93.184.215.14/\r\nhost: 127.0.0.1",
    "space": "http://93.184.215.14/ HTTP/1.1",
    "tab": "ht\ttp://127.0.0.1/",
    "mail": "http://93.184.215.14:25/",
    "ssh": "http://93.184.215.14:22/",
    "port zero": "http://93.184.215.14:0/",
    "port beyond all": "http://93.184.215.14:65536/",
    "IRC": "http://93.184.215.14:6667/",
    "very long": "http://93.184.215.14/" + "a" * 9_000,
    "labels too long": f"http://{'a' * 64}.test/",
}


@pytest.mark.parametrize("url", REFUSED_URLS.values(), ids=REFUSED_URLS.keys())
async def test_url_that_leads_to_no_public_web_server_is_refused_unfetched(desk: Desk, url: str) -> None:
    assert (await desk.refusal(url)).code == "media_refused"


async def test_http_without_tls_is_refused_unless_allowed() -> None:
    with pytest.raises(fetch.MediaFault, match="does not begin with https"):
        Places(False, []).of("http://93.184.215.14/")
    assert Places(False, []).of("https://93.184.215.14/").port == 443


INLINE: dict[str, tuple[Source, Code]] = {
    "empty": (Inline(""), "media_unreadable"),
    "no base64": (Inline("!!!!"), "media_unreadable"),
    "base64 cut off": (Inline(base64.b64encode(PNG).decode()[:-1]), "media_unreadable"),
    "two texts in one": (Inline("iVBORw0KGgo=iVBORw0KGgo="), "media_unreadable"),
    "beyond ASCII": (Inline("\u00e9\u00e9\u00e9\u00e9"), "media_unreadable"),
    "large beyond ASCII": (Inline("\u00e9" * (INLINE_CHARS + 4)), "media_unreadable"),
    "data URL without a comma": (Link("data:image/png;base64"), "media_unreadable"),
    "data URL that is not base64": (Link("data:image/png,%89PNG"), "media_unreadable"),
    "data URL of nothing": (Link("data:;base64,"), "media_unreadable"),
    "data URL of text": (
        Link("data:image/png;base64," + base64.b64encode(b"hello" * 9).decode()),
        "media_type_unsupported",
    ),
    "data URL of a program": (
        Link("data:image/png;base64," + base64.b64encode(b"\x7fELF" * 9).decode()),
        "media_type_unsupported",
    ),
    "data URL in a data URL": (source_of("data:image/png;base64,data:image/png;base64,AAAA"), "media_unreadable"),
    "huge data URL": (Link("data:image/png;base64," + "A" * 8_000_000), "media_too_large"),
    "huge data URL of escapes": (Link("data:image/png;base64," + "%41" * 2_000_000), "media_too_large"),
    "just too large": (Inline(base64.b64encode(PNG + bytes(200_000)).decode()), "media_too_large"),
    "no such file": (Uploaded("file-" + "a" * 32), "file_not_found"),
    "file by path": (Uploaded("../../etc/passwd"), "file_not_found"),
    "file by pattern": (Uploaded("file-*"), "file_not_found"),
}


@pytest.mark.parametrize(("source", "code"), INLINE.values(), ids=INLINE.keys())
async def test_item_inside_the_request_that_is_no_media_is_refused(desk: Desk, source: Source, code: Code) -> None:
    assert (await desk.refusal(source)).code == code


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


async def test_name_that_does_not_exist_and_name_of_ours_are_told_in_the_same_words(desk: Desk) -> None:
    private, absent = await desk.refusal("http://loopback.test/"), await desk.refusal("http://nowhere.test/")
    assert private.message == absent.message


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


async def test_picture_where_sound_is_expected_is_refused_by_its_true_name(desk: Desk) -> None:
    error = await desk.refusal(Inline(base64.b64encode(PNG).decode()), "audio")
    assert "it is image/png, where audio is expected" in error.message


async def test_too_many_items_are_refused_before_any_is_looked_at(desk: Desk) -> None:
    items = [Item("image", Link("http://127.0.0.1/"), f"messages[0].content[{number}]") for number in range(5)]
    with pytest.raises(TriptychError) as caught:
        await desk.intake.take(items, LIMITS)
    assert (caught.value.code, caught.value.param) == ("media_too_many", "messages[0].content[4]")


async def test_the_item_at_fault_is_named_and_the_others_are_stopped() -> None:
    async with Web({"/slow": dripping(OK + b"\r\n" + PNG, b".", 0.05), "/a": page(PNG)}).listening() as web:
        desk = Desk([f"127.0.0.1:{web.port}"])
        items = [
            Item("image", Link(f"{web.url}/slow"), "first"),
            Item("image", Link("file:///x"), "second"),
            Item("image", Link(f"{web.url}/a"), "third"),
        ]
        began_s = time.monotonic()
        with pytest.raises(TriptychError) as caught:
            await desk.intake.take(items, LIMITS)
        assert (caught.value.code, caught.value.param) == ("media_refused", "second")
        assert time.monotonic() - began_s < TIMEOUT_S


async def test_more_urls_than_slots_wait_for_their_turn() -> None:
    go_on = asyncio.Event()

    async def waiting(writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await page(PNG)(writer)

    async with Web({"/a": waiting, "/b": page(PNG)}).listening() as web:
        allowed = [f"127.0.0.1:{web.port}"]
        desk = Desk(allowed, slots=1)
        both = asyncio.gather(desk.take(f"{web.url}/a"), desk.take(f"{web.url}/a"))
        await until(lambda: bool(web.asked))
        # As long as this takes, the second could have come.
        await Desk(allowed).take(f"{web.url}/b")
        assert [head.split(" ")[1] for head in web.asked] == ["/a", "/b"]
        go_on.set()
        assert len(await both) == 2


async def test_url_that_gets_no_turn_is_told_to_come_back() -> None:
    desk = Desk([], slots=1)
    async with desk.fetcher._slot():
        with pytest.raises(TriptychError) as caught:
            await desk.take("http://93.184.215.14/")
    assert (caught.value.code, caught.value.retry_after_s) == ("overloaded", 1)


async def test_others_go_on_while_strangers_dawdle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow name servers, slow web servers and large inline items at once; the event loop stays free."""

    def hanging(*_: object, **__: object) -> list[object]:
        time.sleep(1.5)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    large = base64.b64encode(PNG.ljust(20_000_000, b"\0")).decode()
    async with Web({"/slow": dripping(OK + b"\r\n" + PNG, b".", 0.05)}).listening() as web:
        desk = Desk([f"127.0.0.1:{web.port}"])
        resolver = SystemResolver()
        places = Places(True, [f"127.0.0.1:{web.port}"])
        desk.intake._fetcher = Fetcher(places, resolver, FetchLimits(TIMEOUT_S, 3, 32), trusting_the_usual())
        taking = [
            *(desk.take(f"http://hanging{number}.test/") for number in range(8)),
            *(desk.take(f"{web.url}/slow") for _ in range(8)),
            desk.intake.take([Item("image", Inline(large), "large")], MediaLimits()),
        ]
        done = asyncio.gather(*taking, return_exceptions=True)
        longest_s = 0.0
        while not done.done():
            began_s = time.monotonic()
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, time.monotonic() - began_s)
        outcomes = await done
        resolver.close()
    assert [one.code for one in outcomes[:16] if isinstance(one, TriptychError)] == ["media_unreachable"] * 16
    assert not isinstance(outcomes[16], BaseException)
    # A look-up on the loop would hold it for 1.5 s; two busy cores, for less than this.
    assert longest_s < 0.75
