"""Fetches a URL that a stranger chose: only public places, only so much, only so long.

Each hop's host is resolved once, all its addresses are checked, and the connection may go to these addresses only: a
name that answers differently a moment later changes nothing. A hop shares nothing with the one before it: no
connection, cookie, credential or referrer.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from schemas.errors import TriptychError
from topics.intake.faults import MediaFault, too_large
from topics.intake.places import Address, Place, Places, no_public_address
from topics.intake.resolve import Resolver

CONNECT_S = 5.0
CHUNK_BYTES = 64 << 10
RETRY_AFTER_S = 1

_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS: Mapping[str, str] = {
    "accept": "image/*, audio/*, video/*;q=0.9, */*;q=0.5",
    "accept-encoding": "identity",
    "user-agent": "triptych",
}


class FetchLimits(msgspec.Struct, frozen=True):
    """`timeout_s` is for everything about one URL, from the first look-up to the last byte taken."""

    timeout_s: float
    max_redirects: int
    concurrency: int


class Fetcher:
    """At most `concurrency` URLs at once; the others wait, as long as one may take."""

    def __init__(self, places: Places, resolver: Resolver, limits: FetchLimits, tls: ssl.SSLContext) -> None:
        self._places = places
        self._resolver = resolver
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._tls = tls

    @asynccontextmanager
    async def opened(self, url: str, most_bytes: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of what the URL leads to, piece by piece. Time runs until the block is left.

        A body that says beforehand that it has more than `most_bytes` is refused here; whoever reads it counts.

        Raises:
            MediaFault: media_refused, media_unreachable, media_unreadable, media_too_large; here or from the iterator.
            TriptychError: overloaded, when others keep all places taken.
        """
        async with self._slot(), _within(self._limits.timeout_s), AsyncExitStack() as hop:
            response = await self._follow(url, hop)
            if response.content_length is not None and response.content_length > most_bytes:
                raise too_large(most_bytes)
            async with aclosing(_body(response)) as body:
                yield body

    def close(self) -> None:
        self._resolver.close()

    async def _follow(self, url: str, hop: AsyncExitStack) -> aiohttp.ClientResponse:
        """The answer at the end of all redirects; `hop` closes it."""
        place = self._places.of(url)
        for _ in range(self._limits.max_redirects + 1):
            response = await self._request(place, hop)
            location = response.headers.get("location")
            if response.status not in _REDIRECTS or location is None:
                return _checked(response)
            await hop.aclose()
            place = self._places.of(location, base=place.url)
        raise MediaFault("media_refused", f"its URL redirects more than {self._limits.max_redirects} times")

    async def _request(self, place: Place, hop: AsyncExitStack) -> aiohttp.ClientResponse:
        session = aiohttp.ClientSession(
            connector=_pinned(await self._addresses(place), self._tls),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=CHUNK_BYTES,
        )
        await hop.enter_async_context(session)
        with _translated():
            return await hop.enter_async_context(session.get(place.url, allow_redirects=False))

    async def _addresses(self, place: Place) -> Sequence[Address]:
        known = place.address
        found = [known] if known is not None else await self._resolver.addresses(place.host)
        if not found:
            raise no_public_address()
        self._places.check(place, found)
        return found

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise TriptychError(
                "overloaded", "Too many media URLs are being fetched; please try again.", retry_after_s=RETRY_AFTER_S
            ) from None
        try:
            yield
        finally:
            self._slots.release()


class _Pinned(AbstractResolver):
    """Answers with addresses that have been found and checked already."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


def _pinned(addresses: Sequence[Address], tls: ssl.SSLContext) -> aiohttp.TCPConnector:
    """Connections that can go nowhere else, by whatever way the client library comes to an address."""
    allowed = {str(address) for address in addresses}

    def connecting(info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = info
        if address[0] not in allowed:
            raise PermissionError(errno.EPERM, f"{address[0]} is not among the checked addresses")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    return aiohttp.TCPConnector(
        resolver=_Pinned(addresses), use_dns_cache=False, force_close=True, ssl=tls, socket_factory=connecting
    )


def _checked(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    """Raises MediaFault, unless this is a whole body as it is."""
    if response.status != 200:
        raise MediaFault("media_unreachable", f"its server answered with status {response.status}")
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        # Never asked for; decoding it would make any number of bytes out of a few.
        raise MediaFault("media_refused", "its server sends it with a content-encoding")
    return response


async def _body(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    with _translated():
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            yield chunk


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """One deadline over all of the inside. Raises MediaFault: media_unreachable, when it passes."""
    try:
        async with asyncio.timeout(seconds) as deadline:
            yield
    except TimeoutError:
        if not deadline.expired():
            raise
        raise MediaFault("media_unreachable", f"it did not arrive within {seconds:g} s") from None


@contextmanager
def _translated() -> Iterator[None]:
    """The client library's errors quote hosts and addresses; ours do not."""
    try:
        yield
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
        raise MediaFault("media_unreachable", "its server's TLS or its certificate is not valid") from error
    except aiohttp.ClientPayloadError as error:
        raise MediaFault("media_unreadable", "its server broke off in the middle of it") from error
    except (aiohttp.ClientConnectionError, OSError) as error:
        raise MediaFault("media_unreachable", "its server cannot be reached, or closes the connection") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise MediaFault("media_unreachable", "its server does not speak HTTP as it should") from error
