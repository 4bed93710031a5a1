"""What an encoder's work is known by: equal fingerprint and equal bytes mean an equal artifact."""

import hashlib
import re

import msgspec

from schemas.manifest import EncoderName, Manifest
from schemas.media import EncoderKind

# Raise it when workers/media makes other pixels, frames or samples of the same bytes.
DECODING_VERSION = 1
# Raise one when that engine makes something else of the same pixels or samples with the same weights.
ENGINE_VERSIONS: dict[EncoderName, int] = {"whisper": 1, "labels-ocr": 1, "digits": 1}
_FINGERPRINT_CHARS = 16
_DIGEST_CHARS = 32
_LANGUAGE = re.compile("[a-z]{2,3}")


def fingerprint(manifest: Manifest, pool: EncoderKind) -> str:
    """16 hex digits over everything that the result depends on, besides the item itself. Models that share an encoder
    share its artifacts.

    Raises:
        KeyError: the model has no encoder of this pool.
    """
    encoder = manifest.encoders[pool]
    weights = manifest.weights[encoder.weights] if encoder.weights else None
    vocabulary = manifest.pool if encoder.yields == "token_ids" else ""
    versions = (DECODING_VERSION, ENGINE_VERSIONS.get(encoder.engine, 1))
    what = (pool, encoder.engine, encoder.yields, weights, vocabulary, manifest.media.video_frames, versions)
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:_FINGERPRINT_CHARS]


def artifact_key(fingerprint: str, source_digest: str, language: str = "", *, of_video: bool = False) -> str:
    """Where the artifact of these bytes is. `language`, an ISO 639 code, where the client says what is spoken: it
    changes what is heard. `of_video`: they were sent as a video, of which a silent one is as good as any; the same
    bytes sent as a sound are not.

    Raises:
        ValueError: that is no such code.
    """
    if language and not _LANGUAGE.fullmatch(language):
        raise ValueError(f"{language!r} is no ISO 639 code of a language")
    suffix = (f".{language}" if language else "") + (".video" if of_video else "")
    return f"artifacts/{fingerprint}/{source_digest}{suffix}.safetensors"


def content_digest(fingerprint: str, source_digest: str) -> str:
    """What block keys take for the rows of an artifact: the same item through another encoder is something else."""
    return hashlib.sha256(f"{fingerprint}/{source_digest}".encode()).hexdigest()[:_DIGEST_CHARS]
