"""What strangers may put where a media item belongs: each is refused by name, in words that tell nothing about us."""

import asyncio
import base64
import random
import socket
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from schemas.errors import Code, TriptychError
from schemas.manifest import MediaLimits
from tests.unit.topics.intake.desk import LIMITS, OK, PNG, TIMEOUT_S, Desk, trusting_the_usual
from tests.unit.topics.intake.servers import Web, dripping, page
from tests.waiting import until
from topics.intake.fetch import Fetcher, FetchLimits
from topics.intake.inline import INLINE_CHARS
from topics.intake.intake import Inline, Item, Link, Source, Uploaded, source_of
from topics.intake.places import Places
from topics.intake.resolve import SystemResolver

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


WORDS = {
    "ftp://example.com/a.png": ("media_refused", "its URL begins with ftp: and media are fetched from https:"),
    "file:///home/me/a.png": ("media_refused", "begins with file:"),
    "S3://bucket/a.png": ("media_refused", "begins with S3:"),
    "blob:https://example.com/1-2": ("media_refused", "begins with blob:"),
    "chrome-extension://abcdefghijkl/a.png": ("media_refused", "begins with chrome-extension:"),
    "mailto:a@example.com": ("media_refused", "begins with mailto:"),
    "C:\\Users\\me\\a cat.png": ("media_refused", "it is the path of a file on some machine"),
    "https://example.com/a\nb.png": ("media_refused", "its URL has a control character or the end of a line in it"),
    "ht\ttps://example.com/": ("media_refused", "its URL has a control character"),
    "https://example.com/a\0.png": ("media_refused", "its URL has a control character"),
    "https://example.com/a cat.png": ("media_refused", "its URL has a space, which a URL writes as %20, in it"),
    "https://example.com\\a.png": ("media_refused", "its URL has a backslash in it"),
    "https:///a.png": ("media_refused", "its URL has no host"),
    "https://": ("media_refused", "its URL has no host"),
    "https://[::1/a.png": ("media_refused", "its URL's host or port is malformed"),
    "https://example.com:99999/": ("media_refused", "its URL's host or port is malformed"),
    "https://example.com:http/": ("media_refused", "its URL's host or port is malformed"),
    "https://-example-.com/": ("media_refused", "its host is neither a name nor an address"),
    "https://exa<mple.com/": ("media_refused", "its URL's host or port is malformed"),
    "://example.com": ("media_refused", "its URL has no scheme"),
    "a cat.png": ("media_unreadable", "it is neither base64 nor a URL"),
    "/home/me/a.png": ("media_unreadable", "it is neither base64 nor a URL"),
    "//example.com/a.png": ("media_unreadable", "it is neither base64 nor a URL"),
    "iVBORw0KGgo\x00=": ("media_unreadable", "it has control characters in it"),
    "iVBORw0KGg": ("media_unreadable", "its base64 is cut off"),
    "data:image/png;base64,iVBORw0KGg": ("media_unreadable", "its base64 is cut off"),
    "data:image/png;base64,iVB-Rw0KGg==": ("media_unreadable", "in its data: URL is not valid base64"),
    "data:image/png,iVBORw0KGgo=": ("media_unreadable", "it is a data: URL that is not base64"),
}


@pytest.mark.parametrize(("text", "refusal"), WORDS.items(), ids=[repr(one) for one in WORDS])
async def test_text_that_leads_to_no_media_is_refused_in_words_that_say_why(
    desk: Desk, text: str, refusal: tuple[str, str]
) -> None:
    with pytest.raises(TriptychError) as caught:
        await desk.take(source_of(text))
    code, words = refusal
    assert caught.value.code == code
    assert words in caught.value.message


WRITTEN: dict[str, Callable[[bytes], str]] = {
    "in lines": lambda data: base64.encodebytes(data).decode(),
    "in lines of other systems": lambda data: base64.encodebytes(data).decode().replace("\n", "\r\n"),
    "in lines that were joined": lambda data: base64.encodebytes(data).decode().replace("\n", " "),
    "a character a line": lambda data: "\n".join(base64.b64encode(data).decode()),
    "indented": lambda data: "\n    ".join(["", *base64.encodebytes(data).decode().splitlines(), ""]),
    "as a URL in lines": lambda data: "data:image/png;base64,\n" + base64.encodebytes(data).decode(),
    "as a URL with spaces": lambda data: " data:image/png; base64, " + base64.b64encode(data).decode() + "\n",
    "as a URL with escapes": lambda data: "data:;base64," + quote(base64.encodebytes(data).decode(), safe=""),
    "as a URL with small escapes": lambda data: (
        "data:;base64," + base64.b64encode(data).decode().replace("+", "%2b").replace("/", "%2f").replace("=", "%3d")
    ),
}
LARGE_PNG = PNG + random.Random(1).randbytes(190_000)  # large enough for a thread


@pytest.mark.parametrize("data", [PNG, LARGE_PNG], ids=["small", "large"])
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN.keys())
async def test_base64_is_read_however_it_is_laid_out(desk: Desk, data: bytes, write: Callable[[bytes], str]) -> None:
    taken = await desk.take(source_of(write(data)))
    assert desk.blobs._objects[taken.blob.key] == data


async def test_spaces_do_not_make_it_too_large_or_small_enough(desk: Desk) -> None:
    full = base64.encodebytes(PNG + bytes(LIMITS.item_bytes - len(PNG))).decode()
    assert (await desk.take(source_of(full))).blob.size_bytes == LIMITS.item_bytes
    over = base64.encodebytes(PNG + bytes(LIMITS.item_bytes - len(PNG) + 1)).decode()
    with pytest.raises(TriptychError, match="more than"):
        await desk.take(source_of(over))


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
