"""`GET /v1/outputs/{token}` and `PUT /v1/uploads/{token}`: the store's objects, for whoever has been given the link."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

from litestar import Request, get, head, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Response
from litestar.types import ASGIApp, Receive, Send

from gateway.answer import answering
from gateway.errors import Headers
from gateway.links import Links, OutputLink, UploadLink
from infra.faults import Missing
from infra.ports import Blobs
from schemas import codec
from schemas.errors import TriptychError
from schemas.files import file_object
from topics.intake.faults import MediaFault
from topics.intake.uploads import Uploads

log = logging.getLogger(__name__)

# Each holds a connection to the store, of which there are 64, for as long as its client reads.
AT_ONCE = 32
SEND_LIMIT_S = 300.0
RETRY_AFTER_S = 1
# What a browser may show; anything else, and SVG, which can run scripts, it may only save.
_SHOWN = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/avif", "audio/", "video/")

AnyRequest = Request[Any, Any, Any]


class Outputs:
    """Everything the routes need; one per gateway."""

    def __init__(self, links: Links, blobs: Blobs, uploads: Uploads) -> None:
        self.most_upload_bytes = uploads.limits.most_bytes
        self._links = links
        self._blobs = blobs
        self._uploads = uploads
        self._sending = 0

    def output(self, token: str) -> OutputLink:
        """Raises TriptychError: not_found."""
        link = self._links.opened(token)
        if not isinstance(link, OutputLink):
            raise _no_link()
        return link

    def upload(self, token: str) -> UploadLink:
        """Raises TriptychError: not_found."""
        link = self._links.opened(token)
        if not isinstance(link, UploadLink):
            raise _no_link()
        return link

    async def exists(self, link: OutputLink) -> bool:
        return await self._blobs.exists(link.key)

    async def send(self, link: OutputLink, receive: Receive, send: Send) -> None:
        """The object as the body of a response; one that breaks off is shorter than its content-length.

        Raises:
            TriptychError: not_found, overloaded when too many are under way; nothing has been sent then.
        """
        async with self._room(), aclosing(self._blobs.stream(link.key)) as chunks:
            try:
                first = await anext(chunks, b"")
            except Missing:
                raise _no_link() from None
            await send({"type": "http.response.start", "status": 200, "headers": self.headers(link)})
            try:
                async with asyncio.timeout(SEND_LIMIT_S):
                    await send({"type": "http.response.body", "body": first, "more_body": True})
                    async for chunk in chunks:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except TimeoutError:
                log.info("a client has not read %s within %.0f s; its connection is closed", link.key, SEND_LIMIT_S)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def headers(self, link: OutputLink) -> Headers:
        shown = link.media_type.startswith(_SHOWN)
        suffix = link.media_type.partition("/")[2].partition(";")[0].removeprefix("x-")
        name = f"output.{suffix}" if suffix.isalnum() else "output"
        return [
            (b"content-type", link.media_type.encode("latin-1", "replace")),
            (b"content-length", b"%d" % link.size_bytes),
            (b"content-disposition", f'{"inline" if shown else "attachment"}; filename="{name}"'.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"content-security-policy", b"default-src 'none'; sandbox"),
            (b"cache-control", b"private, max-age=%d, immutable" % self._links.left_s(link)),
            (b"accept-ranges", b"none"),
        ]

    async def receive(self, link: UploadLink, request: AnyRequest) -> Response[bytes]:
        """Raises TriptychError: not_found, rate_limited, deadline_exceeded, or a 4xx that says what is wrong."""
        try:
            async with self._uploads.receiving(), aclosing(request.stream()) as body:
                record = await self._uploads.fill(link.file_id, body)
        except MediaFault as fault:
            raise fault.at("file") from fault
        return Response(codec.to_json(file_object(record)), status_code=200, media_type="application/json")

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[None]:
        if self._sending >= AT_ONCE:
            raise TriptychError("overloaded", "Too many downloads are under way.", retry_after_s=RETRY_AFTER_S)
        self._sending += 1
        try:
            yield
        finally:
            self._sending -= 1


def _no_link() -> TriptychError:
    return TriptychError("not_found", "This link is not valid, or its time is over.")


def routes(outputs: Outputs) -> list[HTTPRouteHandler]:
    @get("/v1/outputs/{token:str}", sync_to_thread=False)
    def download(token: FromPath[str]) -> ASGIApp:
        return answering(partial(outputs.send, outputs.output(token)))

    @head("/v1/outputs/{token:str}")
    async def look(token: FromPath[str]) -> Response[None]:
        link = outputs.output(token)
        if not await outputs.exists(link):
            raise _no_link()
        return Response(None, headers={name.decode(): value.decode() for name, value in outputs.headers(link)})

    @put("/v1/uploads/{token:str}", request_max_body_size=outputs.most_upload_bytes)
    async def upload(token: FromPath[str], request: AnyRequest) -> Response[bytes]:
        return await outputs.receive(outputs.upload(token), request)

    return [download, look, upload]
