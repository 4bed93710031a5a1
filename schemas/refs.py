"""References to objects in the store: the claim check that keeps messages small (promise P6)."""

import hashlib

import msgspec

from schemas.ranges import Bytes, Digest, Label, ObjectKey


class BlobRef(msgspec.Struct, frozen=True, tag="blob"):
    """Names one immutable object of the store by its content."""

    key: ObjectKey  # in the bucket
    digest: Digest  # lower-case hex SHA-256 of the bytes
    size_bytes: Bytes  # their length
    media_type: Label = "application/octet-stream"  # of the bytes


def payload_ref(data: bytes, media_type: str = "application/msgpack", folder: str = "payloads") -> BlobRef:
    """Where a message body too large for the broker goes: `payloads/<sha256>`."""
    digest = hashlib.sha256(data).hexdigest()
    return BlobRef(key=f"{folder}/{digest}", digest=digest, size_bytes=len(data), media_type=media_type)
