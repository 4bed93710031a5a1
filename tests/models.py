"""The real model that tests run: pulled once into the repository's own model folder, then only checked."""

from pathlib import Path

import psutil

from infra import manifests, model_store, settings
from schemas.manifest import Manifest

MODEL = "smollm2-135m"
MODEL_DIR = Path(__file__).resolve().parents[1] / ".triptych" / "models"


def manifest() -> Manifest:
    return manifests.find(settings.load({}), MODEL)


def pulled() -> Path:
    """The model's folder."""
    return model_store.pull(manifest(), MODEL_DIR, lambda phase, done, total: None)


def engine_processes() -> list[psutil.Process]:
    """Of the engine that this process started last; those of other tests may still be there, in it or in a stack."""
    cores = [child for child in psutil.Process().children() if child.name().startswith("VLLM::")]
    cores.sort(key=psutil.Process.create_time)  # pids tell nothing of age, they begin again from below
    return [one for core in cores[-1:] for one in (core, *core.children(recursive=True))]
