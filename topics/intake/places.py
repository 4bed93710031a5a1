"""Where media may be fetched from: what a URL must look like, and which addresses are the public internet's.

Everything is decided on the one parsed URL that is then requested; two parsers could be made to disagree.
"""

import ipaddress
import re
from collections.abc import Iterable

import msgspec
from yarl import URL

from topics.intake.faults import MediaFault

MOST_URL_CHARS = 8_192

# Written into a URL, these are read one way here and another way elsewhere.
_AMBIGUOUS = (
    (re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"), "a control character or the end of a line"),
    (re.compile(r"[ \xa0]"), "a space, which a URL writes as %20,"),
    (re.compile(r"\\"), "a backslash"),
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
# A last label like this makes a host an address in some notation: 2130706433, 0x7f.1, 127.1
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

_WEB_PORTS = (80, 443)
_SYSTEM_PORTS = range(1_024)
# Of the others, those that browsers refuse too: not HTTP speaks there, and may be talked into something.
_OTHER_SERVICES = frozenset(
    (1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080)
)

# Beside what the standard library knows not to be global.
_NOT_PUBLIC_4 = [
    ipaddress.IPv4Network(one)
    for one in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # shared by the customers of a carrier; also clouds' own services
        "168.63.129.16/32",  # a cloud's metadata, at an address that looks like any other
        "192.0.0.0/24",
        "192.88.99.0/24",  # relays to 6to4
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = [
    ipaddress.IPv6Network(one)
    for one in (
        "2001::/23",  # Teredo and other tunnels
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address of anybody's choice inside
        "3fff::/20",
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Place(msgspec.Struct, frozen=True):
    """One place that a URL leads to. `host` is a name, or an address as the URL has it, without brackets."""

    url: URL
    host: str
    port: int

    @property
    def address(self) -> Address | None:
        """The host, if it is one."""
        return _address(self.host)


class Places:
    """The rules, as set for this gateway. `allowed_hosts`: "host:port", which may be private."""

    def __init__(self, allow_http: bool, allowed_hosts: Iterable[str]) -> None:
        self._schemes = ("https", "http") if allow_http else ("https",)
        self._allowed = frozenset(one.strip().lower() for one in allowed_hosts if one.strip())

    def of(self, text: str, base: URL | None = None) -> Place:
        """The place that a URL names, or a redirect from `base`; addresses of a name are checked when it is resolved.

        Raises:
            MediaFault: media_refused.
        """
        if len(text) > MOST_URL_CHARS:
            raise MediaFault("media_refused", f"its URL has more than {MOST_URL_CHARS} characters")
        scheme = text.partition(":")[0]
        if base is None and _SCHEME.fullmatch(scheme):
            self._check_scheme(scheme)
        for ambiguous, name in _AMBIGUOUS:
            if ambiguous.search(text):
                raise MediaFault("media_refused", f"its URL has {name} in it")
        try:
            # Kept as written, where it can be: a signature may be over these very characters.
            url = URL(text, encoded=text.isascii())
            return self._at(base.join(url) if base else url)
        except ValueError as error:  # at once, or when a part of it is asked for
            raise MediaFault("media_refused", "its URL's host or port is malformed") from error

    def _check_scheme(self, scheme: str) -> None:
        """Before anything else of a URL: nothing else means the same in another scheme."""
        if scheme.lower() in self._schemes:
            return
        only = f"media are fetched from {' and '.join(f'{one}:' for one in self._schemes)} only"
        if not scheme:
            raise MediaFault("media_refused", f"its URL has no scheme, and {only}")
        if len(scheme) == 1:
            raise MediaFault("media_refused", "it is the path of a file on some machine, neither a URL nor the content")
        raise MediaFault("media_refused", f"its URL begins with {scheme[:32]}: and {only}")

    def _at(self, url: URL) -> Place:
        self._check_scheme(url.scheme)
        if "@" in url.raw_authority:
            raise MediaFault("media_refused", "its URL has a user name or a password in it")
        host = (url.raw_host or "").removesuffix(".").lower()
        place = Place(url.with_host(host) if host else url, host, url.port or 0)
        self._check_host(place)
        if not self._is_allowed(place) and not _may_speak_http(place.port):
            raise MediaFault("media_refused", "its port is not one for web servers")
        return place

    def check(self, place: Place, addresses: Iterable[Address]) -> None:
        """Raises MediaFault: media_refused, unless all of the place's addresses may be gone to.

        All: a name with one private address among its public ones is no mistake.
        """
        if not self._is_allowed(place) and not all(is_public(one) for one in addresses):
            raise no_public_address()

    def _is_allowed(self, place: Place) -> bool:
        host = f"[{place.host}]" if ":" in place.host else place.host
        return f"{host}:{place.port}" in self._allowed

    def _check_host(self, place: Place) -> None:
        address = place.address
        if address is not None:
            self.check(place, [address])
        elif not place.host:
            raise MediaFault("media_refused", "its URL has no host")
        elif not _HOST.fullmatch(place.host) or _NUMBER.fullmatch(place.host.rpartition(".")[2]):
            raise MediaFault("media_refused", "its host is neither a name nor an address in its usual form")


def no_public_address() -> MediaFault:
    """The same words for a name that does not exist and for one of ours: else they would map our network."""
    return MediaFault("media_refused", "its host has no address on the public internet")


def is_public(address: Address) -> bool:
    """Anybody's server may be there; not this machine, its network, a cloud's metadata, or many machines at once."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in network for network in _NOT_PUBLIC_4)
    if address in _NAT64:  # how machines without IPv4 reach it: what counts is the address inside
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    public = address in _GLOBAL_6 and not any(address in network for network in _NOT_PUBLIC_6)
    return public and address.scope_id is None


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _may_speak_http(port: int) -> bool:
    return port in _WEB_PORTS or (port not in _SYSTEM_PORTS and port not in _OTHER_SERVICES)
