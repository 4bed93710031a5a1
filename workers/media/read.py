"""Bytes of a media item to what the encoders of one pool take."""

from schemas.manifest import MediaLimits
from schemas.media import EncoderKind, MediaKind
from workers.encoder import Decoded, MediaFault
from workers.media import clip, picture, sound


def decode(kind: MediaKind, pool: EncoderKind, data: bytes, limits: MediaLimits) -> Decoded:
    """Of a video, the pool "vision" gets the pictures and "audio" the sound.

    It trusts the libraries below not to crash, hang or eat the memory; `sandbox.Decoders` does not, and calls this in
    processes of their own.

    Raises:
        MediaFault: with a code media_*, and a message for the client.
    """
    if not data:
        raise MediaFault("media_unreadable", f"the {kind} is empty (0 bytes)")
    if len(data) > limits.item_bytes:
        raise MediaFault("media_too_large", f"the {kind} has more than {limits.item_bytes:,} bytes")
    if pool == "audio":
        return sound.read(data, kind, limits)
    return picture.read(data, limits) if kind == "image" else clip.read(data, limits)
