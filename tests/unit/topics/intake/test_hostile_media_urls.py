"""URLs that lead where media must not be fetched from: each is refused before anything is sent."""

import pytest

from tests.unit.topics.intake.desk import Desk
from topics.intake import fetch
from topics.intake.places import Places

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
    with pytest.raises(fetch.MediaFault, match="begins with http: and media are fetched from https: only"):
        Places(False, []).of("http://93.184.215.14/")
    assert Places(False, []).of("https://93.184.215.14/").port == 443


async def test_name_that_does_not_exist_and_name_of_ours_are_told_in_the_same_words(desk: Desk) -> None:
    private, absent = await desk.refusal("http://loopback.test/"), await desk.refusal("http://nowhere.test/")
    assert private.message == absent.message
