"""Engines of encoder and decoder pools, by what a manifest names. Each is imported only when chosen: a pool pays for
nothing that it does not run."""

from pathlib import Path

from infra import model_paths
from schemas.manifest import Decoder, Encoder, Manifest
from schemas.media import EncoderKind
from workers.decoder import PictureEngine, SpeechEngine
from workers.encoder import EncoderEngine


class NoSuchEngine(Exception):
    """The manifest declares nothing of this kind, or an engine that cannot do it; the message says what it has."""


def encoder(manifest: Manifest, pool: EncoderKind, model_dir: Path) -> EncoderEngine:
    """The engine of `manifest.encoders[pool]`; nothing is loaded yet.

    Raises:
        NoSuchEngine
    """
    declared = manifest.encoders.get(pool)
    match (pool, declared and declared.engine):
        case ("audio", "whisper"):
            from workers.engines.whisper import WhisperEngine

            return WhisperEngine(_weights(manifest, declared, model_dir))
        case ("vision", "labels-ocr"):
            from workers.engines.labels_ocr import LabelsOcrEngine

            return LabelsOcrEngine(_weights(manifest, declared, model_dir))
        case ("vision", "digits"):
            from workers.engines.digits import DigitsEncoder

            return DigitsEncoder(_weights(manifest, declared, model_dir))
    raise _nothing(manifest, f"encoders.{pool}", declared)


def picture(manifest: Manifest, model_dir: Path) -> PictureEngine:
    """The engine of `manifest.decoders["image"]`; nothing is loaded yet.

    Raises:
        NoSuchEngine
    """
    declared = manifest.decoders.get("image")
    if declared and declared.engine == "digits":
        from workers.engines.digits import DigitsPainter

        return DigitsPainter(_weights(manifest, declared, model_dir))
    raise _nothing(manifest, "decoders.image", declared)


def speech(manifest: Manifest, model_dir: Path) -> SpeechEngine:
    """The engine of `manifest.decoders["audio"]`; nothing is loaded yet.

    Raises:
        NoSuchEngine
    """
    declared = manifest.decoders.get("audio")
    if declared and declared.engine == "hibari":
        from workers.engines.hibari import HibariEngine

        return HibariEngine(declared.voices)
    raise _nothing(manifest, "decoders.audio", declared)


def _weights(manifest: Manifest, declared: Encoder | Decoder | None, model_dir: Path) -> Path:
    assert declared is not None  # the caller has looked at its engine
    return model_paths.of_weights(manifest, declared.weights, model_dir)


def _nothing(manifest: Manifest, where: str, declared: Encoder | Decoder | None) -> NoSuchEngine:
    what = f"names the engine {declared.engine!r}, which cannot do this" if declared else "is not declared"
    return NoSuchEngine(f"model {manifest.id!r}: {where} {what}")
