"""What strangers may put where a media item belongs: each is refused by name, in words that tell nothing about us."""

import asyncio
import base64
import socket
import time

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
