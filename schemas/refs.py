"""References to objects in the store: the claim check that keeps messages small (promise P6)."""

import hashlib

import msgspec


class BlobRef(msgspec.Struct, frozen=True, tag="blob"):
    """Names one immutable object of the store by its content."""

    key: str  # in the bucket
    digest: str  # lower-case hex SHA-256 of the bytes
    size_bytes: int  # their length
    media_type: str = "application/octet-stream"  # of the bytes

    def check(self, data: bytes) -> None:
        """Raises ValueError when these are not the bytes that it names."""
        if len(data) != self.size_bytes or hashlib.sha256(data).hexdigest() != self.digest:
            raise ValueError(f"{self.key}: {len(data)} bytes that do not match the reference ({self.size_bytes} bytes)")


def payload_ref(data: bytes, media_type: str = "application/msgpack", folder: str = "payloads") -> BlobRef:
    """Where a message body too large for the broker goes: `payloads/<sha256>`."""
    digest = hashlib.sha256(data).hexdigest()
    return BlobRef(key=f"{folder}/{digest}", digest=digest, size_bytes=len(data), media_type=media_type)
