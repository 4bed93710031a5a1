"""`/v1/files`: upload a file once, through us or straight to the object store, and use it by its id."""

import hashlib
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream
from msgspec import Meta

from gateway import decode, form
from gateway.links import Links, origin_of
from schemas import codec
from schemas.errors import TriptychError
from schemas.files import FileDeleted, FileList, FileObject, LifeSeconds, Purpose, UploadRequest, file_object
from topics.intake.faults import MediaFault
from topics.intake.uploads import Uploads

# What a form has beside its file: boundaries, headers, small fields.
FORM_OVERHEAD_BYTES = 128 << 10
MOST_LISTED = 1_000
MOST_ANNOUNCEMENT_BYTES = 16 << 10

ANONYMOUS = "anonymous"
# What stands for a key where none is needed: in our own documentation `none`, the others in that of SDKs and servers
# with the same API. In lower case; the last word of the header.
SHARED_KEYS = frozenset(
    (
        *("", "bearer", "none", "null", "undefined", "empty", "dummy", "fake", "test", "key", "api_key", "api-key"),
        *("your-api-key", "your_api_key", "no-key", "not-needed", "no-key-required", "sk-no-key-required", "sk-none"),
        *("token-abc123", "ollama", "lm-studio", "sk-xxx", "sk-1234", "x", "xxx", "-"),
    )
)

AnyRequest = Request[Any, Any, Any]
_upload = msgspec.json.Decoder(UploadRequest)


class _Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The form's fields beside the file; the names with brackets are how OpenAI's SDKs flatten an object."""

    purpose: Purpose
    anchor: Literal["created_at"] | None = msgspec.field(default=None, name="expires_after[anchor]")
    seconds: LifeSeconds | None = msgspec.field(default=None, name="expires_after[seconds]")


class _Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a listing."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 100
    order: Literal["desc"] = "desc"


class Files:
    """Everything the routes need. `links` are None where clients can reach the store themselves."""

    def __init__(self, uploads: Uploads, links: Links | None = None) -> None:
        self._uploads = uploads
        self._links = links

    async def create(self, request: AnyRequest) -> FileObject:
        """Raises TriptychError: a 400 that names the parameter, rate_limited, or a media_ code."""
        content_type = request.headers.get("content-type", "")
        kind = content_type.partition(";")[0].strip().lower()
        if kind == "application/json":
            return await self._announced(request)
        if kind == "multipart/form-data":
            return await self._received(request, content_type)
        raise TriptychError(
            "unsupported_media_type",
            "Send the file as multipart/form-data, or its name, size and purpose as application/json.",
        )

    async def listing(self, request: AnyRequest) -> FileList:
        query, owner = decode.texts(dict(request.query_params), _Query), _owner(request)
        if owner == ANONYMOUS:
            raise TriptychError(
                "key_required",
                "Files are listed for the API key that they were uploaded with, and the one you use is everybody's. "
                "Upload and list with a key of your own: any text that nobody else can guess. A file can be used by "
                "its id with any key.",
            )
        found, more = await self._uploads.listing(owner, query.after, query.limit)
        data = [file_object(one) for one in found]
        ends = (data[0].id, data[-1].id) if data else (None, None)
        return FileList(data=data, has_more=more, first_id=ends[0], last_id=ends[1])

    async def retrieve(self, file_id: str) -> FileObject:
        with _named(file_id):
            return file_object(await self._uploads.get(file_id))

    async def delete(self, file_id: str) -> FileDeleted:
        with _named(file_id):
            await self._uploads.delete(file_id)
        return FileDeleted(id=file_id)

    async def content(self, file_id: str) -> Stream:
        with _named(file_id):
            record = await self._uploads.get(file_id)
            blob = record.blob or await self._uploads.blob(file_id)
        headers = {
            "content-length": str(blob.size_bytes),
            # A browser must not run what a stranger has uploaded, whatever it takes it for.
            "content-disposition": f"attachment; filename*=UTF-8''{quote(record.filename, safe='')}",
            "x-content-type-options": "nosniff",
        }
        return Stream(self._uploads.content(blob), media_type=blob.media_type, headers=headers)

    async def _received(self, request: AnyRequest, content_type: str) -> FileObject:
        async with self._uploads.receiving(), aclosing(request.stream()) as body:
            sent = await form.read(body, content_type, self._uploads.store)
        fields = decode.texts(sent.fields, _Fields)
        if not sent.files:
            raise TriptychError("missing_parameter", "Missing required parameter: 'file'.", param="file")
        file, ttl_s = sent.files[0], self._ttl_s(fields.seconds)
        return file_object(
            await self._uploads.register(file.blob, file.filename, fields.purpose, _owner(request), ttl_s)
        )

    async def _announced(self, request: AnyRequest) -> FileObject:
        asked = decode.json_body(
            await decode.whole(request, MOST_ANNOUNCEMENT_BYTES), request.headers.get("content-type", ""), _upload
        )
        expires = asked.expires_after
        ttl_s = self._ttl_s(expires.seconds if expires else None)
        record, target = await self._uploads.announce(asked, _owner(request), ttl_s)
        if self._links is not None:
            url = self._links.upload(record.id, target.expires_at, origin_of(request.scope))
            target = msgspec.structs.replace(target, url=url)
        return file_object(record, target)

    def _ttl_s(self, asked_s: int | None) -> int:
        most_s = self._uploads.limits.ttl_s
        if asked_s is not None and asked_s > most_s:
            raise TriptychError(
                "invalid_request",
                f"Invalid value for 'expires_after': at most {most_s} seconds.",
                param="expires_after",
            )
        return asked_s or most_s


@contextmanager
def _named(file_id: str) -> Iterator[None]:
    """A fault of the file becomes an error about the id in the path."""
    try:
        yield
    except MediaFault as fault:
        raise TriptychError(
            fault.code, f"Cannot use the file {file_id[:100]!r}: {fault.why}.", param="file_id"
        ) from fault


def _owner(request: AnyRequest) -> str:
    """Who lists a file is who shows the key it was uploaded with; the key itself is kept nowhere."""
    shown = request.headers.get("authorization", "")
    if (shown.split() or [""])[-1].lower() in SHARED_KEYS:
        return ANONYMOUS
    return hashlib.sha256(shown.encode()).hexdigest()[:32]


def _json(value: msgspec.Struct) -> Response[bytes]:
    return Response(codec.to_json(value), status_code=200, media_type="application/json")


def routes(files: Files, most_bytes: int) -> list[HTTPRouteHandler]:
    @post("/v1/files", request_max_body_size=most_bytes + FORM_OVERHEAD_BYTES)
    async def create(request: AnyRequest) -> Response[bytes]:
        return _json(await files.create(request))

    @get("/v1/files")
    async def listing(request: AnyRequest) -> Response[bytes]:
        return _json(await files.listing(request))

    @get("/v1/files/{file_id:str}")
    async def retrieve(file_id: FromPath[str]) -> Response[bytes]:
        return _json(await files.retrieve(file_id))

    @delete("/v1/files/{file_id:str}", status_code=200)
    async def remove(file_id: FromPath[str]) -> Response[bytes]:
        return _json(await files.delete(file_id))

    @get("/v1/files/{file_id:str}/content")
    async def content(file_id: FromPath[str]) -> Stream:
        return await files.content(file_id)

    return [create, listing, retrieve, remove, content]
