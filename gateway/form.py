"""A multipart/form-data body read as it comes: small fields are kept, the file's bytes are passed on and never held."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias

import msgspec
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from schemas.errors import TriptychError
from schemas.refs import BlobRef

FILE_FIELD = "file"
MOST_FIELDS = 16
MOST_FIELD_BYTES = 4_096

Keep = Callable[[AsyncIterator[bytes]], Awaitable[BlobRef]]
# A segment's head, pieces of its body, and None at its end.
Events: TypeAlias = AsyncGenerator[MultipartSegment | bytes | bytearray | None]


class Form(msgspec.Struct):
    """What came: `blob` and `filename` are of the field "file"."""

    fields: dict[str, str] = {}
    filename: str = ""
    blob: BlobRef | None = None


async def read(body: AsyncIterator[bytes], content_type: str, keep: Keep) -> Form:
    """Read all of it; `keep` stores the file.

    Raises:
        TriptychError: invalid_request, when it is no such form; and what `keep` raises.
    """
    form = Form()
    try:
        async with aclosing(_events(body, _boundary(content_type))) as events:
            async for event in events:
                if isinstance(event, MultipartSegment):
                    await _take(form, event, events, keep)
    except MultipartError as error:
        raise TriptychError("invalid_request", f"The body is no valid multipart/form-data: {error}.") from error
    return form


async def _take(form: Form, segment: MultipartSegment, events: Events, keep: Keep) -> None:
    content = _content(events)
    if segment.name == FILE_FIELD:
        if form.blob is not None:
            raise TriptychError("invalid_request", "One request uploads one file.", param=FILE_FIELD)
        form.filename = segment.filename or FILE_FIELD
        form.blob = await keep(content)
        return
    value = b""
    async for chunk in content:
        value += chunk
        if len(value) > MOST_FIELD_BYTES:
            raise TriptychError("invalid_request", "A form field is too long.", param=segment.name)
    form.fields[segment.name or ""] = value.decode("utf-8", "replace")


async def _events(body: AsyncIterator[bytes], boundary: str) -> Events:
    with PushMultipartParser(boundary, max_segment_count=MOST_FIELDS, strict=True) as parser:
        async for chunk in body:
            if chunk:
                for event in parser.parse(chunk):
                    yield event


async def _content(events: Events) -> AsyncIterator[bytes]:
    """The bytes of the segment that has just begun."""
    async for event in events:
        if event is None:
            return
        yield bytes(event)


def _boundary(content_type: str) -> str:
    boundary: str = parse_options_header(content_type)[1].get("boundary", "")
    if not boundary:
        raise TriptychError("invalid_request", "The content type names no boundary.", param="content-type")
    return boundary
