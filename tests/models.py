"""The real model that tests run: pulled once into the repository's own model folder, then only checked."""

from pathlib import Path

from infra import manifests, model_store, settings
from schemas.manifest import Manifest

MODEL = "smollm2-135m"
MODEL_DIR = Path(__file__).resolve().parents[1] / ".triptych" / "models"


def manifest() -> Manifest:
    return manifests.find(settings.load({}), MODEL)


def pulled() -> Path:
    """The model's folder."""
    return model_store.pull(manifest(), MODEL_DIR, lambda phase, done, total: None)
