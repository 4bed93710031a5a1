"""Links: what opens, what does not, and where they point."""

import base64
from typing import Any

import pytest

from gateway import links
from gateway.links import Links, OutputLink, UploadLink, derived, origin_of
from infra.clock import ManualClock
from schemas.refs import BlobRef

ORIGIN = "http://127.0.0.1:8000"
REF = BlobRef("outputs/5f2e/0", "0" * 64, 12, "image/png")


def token_of(url: str) -> str:
    return url.rpartition("/")[2]


def test_a_link_opens_what_it_was_made_for_until_its_time_is_over() -> None:
    clock = ManualClock()
    some = Links("secret", "", clock)
    url = some.output(REF, 3_600, ORIGIN)
    assert url.startswith(f"{ORIGIN}/v1/outputs/")
    link = some.opened(token_of(url))
    assert link == OutputLink(REF.key, 12, "image/png", int(clock.now()) + 3_600)
    assert some.left_s(link) in (3_599, 3_600)
    clock.advance(3_601)
    assert some.opened(token_of(url)) is None


def test_gateways_with_the_same_secret_open_each_others_links_and_nobody_else_does() -> None:
    clock = ManualClock()
    token = token_of(Links("secret", "", clock).upload("file-1", int(clock.now()) + 60, ORIGIN))
    assert Links("secret", "https://x.example", clock).opened(token) == UploadLink("file-1", int(clock.now()) + 60)
    assert Links("other", "", clock).opened(token) is None


def test_no_token_that_differs_in_one_bit_opens_anything() -> None:
    some = Links("secret", "", ManualClock())
    token = token_of(some.output(REF, 3_600, ORIGIN))
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        assert some.opened(base64.urlsafe_b64encode(changed).rstrip(b"=").decode()) is None


@pytest.mark.parametrize("token", ["", "x", "....", "=", "é", "a" * 2_000, "%00", "aGVsbG8", "A" * 43])
def test_nonsense_opens_nothing(token: str) -> None:
    assert Links("secret", "", ManualClock()).opened(token) is None


@pytest.mark.parametrize("key", ["media/abc", "transcripts/audio_1", "outputs", "../outputs/x"])
def test_only_outputs_can_be_linked_to(key: str) -> None:
    some = Links("secret", "", ManualClock())
    assert some.opened(token_of(some.output(BlobRef(key, "0" * 64, 1), 60, ORIGIN))) is None


def test_what_another_version_has_signed_opens_nothing() -> None:
    some = Links("secret", "", ManualClock())
    said = links._encoder.encode(["later", 1])
    token = base64.urlsafe_b64encode(some._mac(said) + said).rstrip(b"=").decode()
    assert some.opened(token) is None


def test_a_set_public_url_wins_over_where_the_client_is() -> None:
    some = Links("secret", "https://ai.example.com/triptych/", ManualClock())
    assert some.output(REF, 60, ORIGIN).startswith("https://ai.example.com/triptych/v1/outputs/")


def test_the_key_is_derived_as_rfc_5869_says() -> None:
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"  # its test case 3
    assert derived(b"\x0b" * 22, b"").hex() == expected
    assert derived(b"secret", b"a") != derived(b"secret", b"b")


def scope(host: bytes | None, scheme: str = "http", server: Any = ("10.0.0.5", 8000)) -> Any:
    headers = [] if host is None else [(b"host", host)]
    return {"type": "http", "scheme": scheme, "headers": headers, "server": server}


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (b"127.0.0.1:8000", "http://127.0.0.1:8000"),
        (b"box.local", "http://box.local"),
        (b"[::1]:8000", "http://[::1]:8000"),
        (b"gpu_box-2.lan:80", "http://gpu_box-2.lan:80"),
        (None, "http://10.0.0.5:8000"),
        (b"", "http://10.0.0.5:8000"),
        (b"evil.example/path", "http://10.0.0.5:8000"),
        (b"user@evil.example", "http://10.0.0.5:8000"),
        (b"evil.example?x", "http://10.0.0.5:8000"),
        (b"evil.example\r\nx: y", "http://10.0.0.5:8000"),
        (b"a b", "http://10.0.0.5:8000"),
        (b"\xff", "http://10.0.0.5:8000"),
        (b"a:123456", "http://10.0.0.5:8000"),
    ],
)
def test_the_origin_is_what_the_client_calls_us_if_that_can_be_in_a_url(host: bytes | None, origin: str) -> None:
    assert origin_of(scope(host)) == origin


def test_the_origin_of_a_server_behind_ipv6_or_tls() -> None:
    assert origin_of(scope(None, "https", ("::1", 8443))) == "https://[::1]:8443"
    assert origin_of(scope(None, "http", None)) == "http://localhost"
