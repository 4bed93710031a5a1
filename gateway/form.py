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


class Sent(msgspec.Struct, frozen=True):
    """A file of a form, in the store now."""

    field: str
    filename: str
    blob: BlobRef


class Form(msgspec.Struct):
    """What came. Of a field that came several times `fields` has the last value, `lists` has all."""

    fields: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    files: list[Sent] = []


class Rules(msgspec.Struct, frozen=True):
    """What a form may hold: which of its fields are files, and how much of everything."""

    file_fields: tuple[str, ...] = (FILE_FIELD,)
    most_files: int = 1
    most_field_bytes: int = MOST_FIELD_BYTES


async def read(body: AsyncIterator[bytes], content_type: str, keep: Keep, rules: Rules = Rules()) -> Form:  # noqa: B008  # frozen
    """Read all of it; `keep` stores each file.

    Raises:
        TriptychError: invalid_request, when it is no such form; and what `keep` raises.
    """
    form = Form()
    try:
        async with aclosing(_events(body, _boundary(content_type))) as events:
            async for event in events:
                if isinstance(event, MultipartSegment):
                    await _take(form, event, events, keep, rules)
    except MultipartError as error:
        raise TriptychError("invalid_request", f"The body is no valid multipart/form-data: {error}.") from error
    return form


def values(form: Form) -> dict[str, object]:
    """The fields by their names; those whose names end in [] are lists."""
    return {name.removesuffix("[]"): all_ if name.endswith("[]") else all_[-1] for name, all_ in form.lists.items()}


async def _take(form: Form, segment: MultipartSegment, events: Events, keep: Keep, rules: Rules) -> None:
    content, name = _content(events), segment.name or ""
    if name in rules.file_fields:
        if len(form.files) == rules.most_files:
            raise TriptychError("invalid_request", f"At most {rules.most_files} files in one request.", param=name)
        form.files.append(Sent(name, segment.filename or name, await keep(content)))
        return
    value = b""
    async for chunk in content:
        value += chunk
        if len(value) > rules.most_field_bytes:
            raise TriptychError("invalid_request", "A form field is too long.", param=name)
    form.fields[name] = value.decode("utf-8", "replace")
    form.lists.setdefault(name, []).append(form.fields[name])


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
