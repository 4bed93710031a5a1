"""Where the files of a served model lie: the language model's folder, and one for each of its weights."""

import hashlib
from pathlib import Path

import msgspec

from schemas.manifest import Manifest, Source

BUILT_IN = Path(__file__).parent / "models"  # manifests, and the small weights that come with Triptych
_DIGEST_CHARS = 12


def of_llm(manifest: Manifest, model_dir: Path) -> Path:
    """A plain Hugging Face folder; models that share an LLM share it."""
    return model_dir / manifest.pool


def of_weights(manifest: Manifest, name: str, model_dir: Path) -> Path:
    """The folder of an entry of `manifest.weights`; two models whose entry is the same share it.

    Raises:
        KeyError: there is no such entry (the loader of manifests has looked).
    """
    return of_source(name, manifest.weights[name], model_dir)


def of_source(name: str, source: Source, model_dir: Path) -> Path:
    if source.kind == "built-in":
        return BUILT_IN / source.path
    digest = hashlib.sha256(msgspec.json.encode(source)).hexdigest()[:_DIGEST_CHARS]
    return model_dir / "weights" / f"{name}-{digest}"
