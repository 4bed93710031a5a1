"""Links through the gateway to what is in the object store, for clients that cannot reach the store itself.

A link is its own permission: signed, for one thing, for a while. All gateways of a cluster open each other's, because
the key is derived from the store's secret key, which they share.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Any

import msgspec
from litestar.types import Scope

from infra.clock import Clock
from schemas.refs import BlobRef

OUTPUTS = "/v1/outputs/"
UPLOADS = "/v1/uploads/"
MAC_BYTES = 32
# Of a key and a media type, in base64; a longer token is not looked at.
MOST_TOKEN_CHARS = 1_024

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_FOLDER = "outputs/"


class OutputLink(msgspec.Struct, frozen=True, tag="output", array_like=True):
    """To something that a decoder has made. `expires_at`: unix seconds."""

    key: str
    size_bytes: int
    media_type: str
    expires_at: int


class UploadLink(msgspec.Struct, frozen=True, tag="upload", array_like=True):
    """To where the bytes of one announced file go."""

    file_id: str
    expires_at: int


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[OutputLink | UploadLink] = msgspec.msgpack.Decoder(OutputLink | UploadLink)


class Links:
    """`public_url` is where clients reach the gateways; empty: wherever each of them has."""

    def __init__(self, secret: str, public_url: str, clock: Clock) -> None:
        self._key = derived(secret.encode(), b"triptych links 1")
        self._public_url = public_url.rstrip("/")
        self._clock = clock

    def output(self, ref: BlobRef, within_s: int, origin: str) -> str:
        """`origin`: where this client has reached us, as `origin_of` says."""
        expires_at = int(self._clock.now()) + within_s
        return self._url(OUTPUTS, OutputLink(ref.key, ref.size_bytes, ref.media_type, expires_at), origin)

    def upload(self, file_id: str, expires_at: int, origin: str) -> str:
        return self._url(UPLOADS, UploadLink(file_id, expires_at), origin)

    def opened(self, token: str) -> OutputLink | UploadLink | None:
        """None when its time is over, or it is none of ours."""
        link = self._read(token)
        if link is None or link.expires_at <= self._clock.now():
            return None
        # Whoever has our secret still gets nothing but outputs.
        return link if isinstance(link, UploadLink) or link.key.startswith(_FOLDER) else None

    def left_s(self, link: OutputLink | UploadLink) -> int:
        return max(0, int(link.expires_at - self._clock.now()))

    def _url(self, path: str, link: OutputLink | UploadLink, origin: str) -> str:
        said = _encoder.encode(link)
        token = base64.urlsafe_b64encode(self._mac(said) + said).rstrip(b"=").decode()
        return f"{self._public_url or origin}{path}{token}"

    def _read(self, token: str) -> OutputLink | UploadLink | None:
        if len(token) > MOST_TOKEN_CHARS or not token.isascii():
            return None
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
        except binascii.Error:
            return None
        mac, said = raw[:MAC_BYTES], raw[MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(said)):
            return None
        try:
            return _decoder.decode(said)
        except msgspec.DecodeError:  # of another version
            return None

    def _mac(self, said: bytes) -> bytes:
        return hmac.digest(self._key, said, "sha256")


def derived(secret: bytes, purpose: bytes) -> bytes:
    """HKDF (RFC 5869) with SHA-256 and no salt; one block, which is all we need of it."""
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), secret, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def origin_of(scope: Scope) -> str:
    """Scheme, host and port by which this client has reached us: what it calls us, if that can stand in a URL."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    if not _HOST.fullmatch(host):
        server: Any = scope["server"] or ("localhost", None)
        name = f"[{server[0]}]" if ":" in server[0] else server[0]
        host = name if server[1] is None else f"{name}:{server[1]}"
    return f"{scope['scheme']}://{host}"
