"""One record of each topic as the AsyncAPI document shows it: made from the wire types, for models that are served."""

import hashlib
from collections.abc import Sequence
from typing import get_args

import msgspec

from schemas import codec
from schemas.jobs import DeadLetter, DecodeJob, EncodeJob, GenerateJob, Head, Job, Offloaded, Sampling
from schemas.manifest import Manifest
from schemas.media import DecoderKind, EncoderKind, ImageOptions, Room, Slot, SpeechOptions
from schemas.refs import BlobRef, payload_ref
from topics import names
from topics.dead_letters import Reason

CREATED_AT = 1_800_000_000.0  # unix seconds
DEADLINE_S = 60.0
PROMPT_IDS = [1, 9690, 198, 2683, 314, 8388, 47, 2, 198, 1, 520, 9531, 198]


def of(topic: str, manifests: Sequence[Manifest]) -> list[msgspec.Struct]:
    """Its message, and where that may be too large, the reference that stands in its place."""
    if topic == names.DEAD_LETTERS:
        return [_letter(names.generate(manifests[0].pool))]
    job = _job(topic, manifests)
    return [job, Offloaded(payload_ref(codec.encode(job)))]


def _job(topic: str, manifests: Sequence[Manifest]) -> Job:
    for one in manifests:
        if topic == names.generate(one.pool):
            return _generate(one)
        for encoder in get_args(EncoderKind):
            if encoder in one.encoders and topic == names.encode(encoder):
                return _encode(one, encoder)
        for decoder in get_args(DecoderKind):
            if decoder in one.decoders and topic == names.decode(decoder):
                return _decode(one, decoder)
    raise ValueError(f"these models need no topic {topic}")


def _head(model: Manifest, prefix: str) -> Head:
    return Head(f"{prefix}-8f14e45f", model.pool, CREATED_AT + DEADLINE_S, CREATED_AT, reply_to="gateway-1")


def _generate(model: Manifest) -> GenerateJob:
    return GenerateJob(_head(model, "chatcmpl"), PROMPT_IDS, Sampling(max_tokens=64, temperature=0.7, seed=7))


def _encode(model: Manifest, kind: EncoderKind) -> EncodeJob:
    digest = hashlib.sha256(kind.encode()).hexdigest()
    source = BlobRef(f"media/{digest}", digest, 48_213, "image/png" if kind == "vision" else "audio/wav")
    slot = Slot(
        offset=4,
        kind="image" if kind == "vision" else "audio",
        pool=kind,
        encoder=f"{model.id}/{kind}",
        source=source,
        artifact=f"artifacts/3c59dc048e88/{digest}.safetensors",
        param="messages[0].content[1]",
    )
    draft = _generate(model)
    return EncodeJob(draft.head, [slot], 0, draft, Room(model.limits.context_tokens, asked_tokens=64))


def _decode(model: Manifest, kind: DecoderKind) -> DecodeJob:
    if kind == "image":
        options = ImageOptions("png", 256, 256, seed=7)
        return DecodeJob(_head(model, "img"), f"{model.id}/image", options, codes=[7, 19, 4, 33])
    voices = model.decoders[kind].voices
    spoken = SpeechOptions(voices[0] if voices else "", "mp3")
    return DecodeJob(_head(model, "speech"), f"{model.id}/audio", spoken, text="Good morning.")


def _letter(topic: str) -> DeadLetter:
    reason: Reason = "undecodable"
    return DeadLetter(reason, "Expected `object`, got `int`", topic, 3, 42, CREATED_AT, key=b"order-7", value=b"7")
