"""Uploaded files: our record of one, and OpenAI's words for it."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.refs import BlobRef

Purpose = Literal["user_data", "vision"]
LifeSeconds = Annotated[int, Meta(ge=3_600, le=2_592_000)]  # OpenAI's range


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One uploaded file. Times are unix seconds.

    Until somebody uses a file that was uploaded straight to the object store, it has no `blob`: its bytes, if they
    have come yet, lie under `upload_key`, and nobody has looked at them.
    """

    id: str
    owner: str  # who may list it; who has the id may use it
    filename: str
    purpose: Purpose
    size_bytes: int
    created_at: float
    expires_at: float
    blob: BlobRef | None = None
    upload_key: str = ""


class ExpiresAfter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    anchor: Literal["created_at"]
    seconds: LifeSeconds


class UploadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON to `POST /v1/files`: the file will be uploaded straight to the object store."""

    filename: Annotated[str, Meta(min_length=1, max_length=255)]
    bytes: Annotated[int, Meta(ge=1)]
    purpose: Purpose
    expires_after: ExpiresAfter | None = None


class UploadTarget(msgspec.Struct, frozen=True):
    """Where exactly the announced number of bytes goes, with what verb, and until when (unix seconds)."""

    url: str
    method: Literal["PUT"]
    expires_at: int


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: uploaded = announced, and looked at when it is first used; processed = there and usable."""

    id: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Purpose
    status: Literal["uploaded", "processed"]
    object: Literal["file"] = "file"
    upload: UploadTarget | msgspec.UnsetType = msgspec.UNSET


class FileList(msgspec.Struct, frozen=True, kw_only=True):
    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


class FileDeleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    deleted: Literal[True] = True
    object: Literal["file"] = "file"


def file_object(record: FileRecord, upload: UploadTarget | msgspec.UnsetType = msgspec.UNSET) -> FileObject:
    """The one translation from our record to OpenAI's object."""
    return FileObject(
        id=record.id,
        bytes=record.size_bytes,
        created_at=int(record.created_at),
        expires_at=int(record.expires_at),
        filename=record.filename,
        purpose=record.purpose,
        status="uploaded" if record.blob is None else "processed",
        upload=upload,
    )
