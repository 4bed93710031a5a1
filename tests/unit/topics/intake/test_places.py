"""Which hosts and addresses media may come from."""

import ipaddress

import pytest

from topics.intake.faults import MediaFault
from topics.intake.places import Places, is_public


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.215.14", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"],
)
def test_addresses_of_the_public_internet_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:8.8.8.8",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::808:808",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:808:808::1",
        "3fff::1",
        "fc00::1",
        "fe80::1",
        "fe80::1%eth0",
        "2606:4700::1111%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_all_other_addresses_are_not(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["2130706433", "0177.0.0.1", "0x7f.1", "127.1", "1.2.3.4.5", "a.0x7f", "256.1.1.1", "08.8.8.8"]
)
def test_host_that_is_a_number_in_some_notation_is_refused_before_anybody_looks_it_up(host: str) -> None:
    with pytest.raises(MediaFault, match="neither a name nor an address in its usual form"):
        Places(True, []).of(f"http://{host}/")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://Example.COM./a", "example.com", 80),
        ("https://example.com:8443/a", "example.com", 8443),
        ("https://xn--r8jz45g.jp/", "xn--r8jz45g.jp", 443),
        ("https://\u4f8b\u3048.jp/", "xn--r8jz45g.jp", 443),
        ("https://my_bucket.s3.example.com/", "my_bucket.s3.example.com", 443),
        ("https://[2606:4700::1111]/", "2606:4700::1111", 443),
        ("https://8.8.8.8/", "8.8.8.8", 443),
    ],
)
def test_usual_hosts_are_read_as_written(url: str, host: str, port: int) -> None:
    place = Places(True, []).of(url)
    assert (place.host, place.port) == (host, port)


def test_private_host_is_allowed_singly_with_its_port() -> None:
    places = Places(True, ["10.0.0.7:8080", " Files.Corp:443 ", "[::1]:9000", ""])
    for url in ("http://10.0.0.7:8080/", "https://files.corp/", "http://[::1]:9000/"):
        place = places.of(url)
        places.check(place, [ipaddress.ip_address("10.1.1.1")])
    for url in ("http://10.0.0.7/", "http://10.0.0.7:8081/", "http://[::1]:9001/"):
        with pytest.raises(MediaFault):
            places.of(url)
    with pytest.raises(MediaFault):
        places.check(places.of("http://files.corp/"), [ipaddress.ip_address("10.1.1.1")])


def test_redirect_is_read_from_where_it_came() -> None:
    places = Places(True, [])
    base = places.of("https://example.com/a/b?c").url
    assert str(places.of("../d?e=%2F", base).url) == "https://example.com/d?e=%2F"
    assert places.of("//example.org/", base).host == "example.org"
    with pytest.raises(MediaFault, match="begins with http: and media are fetched from https: only"):
        Places(False, []).of("http://example.com/", base)
