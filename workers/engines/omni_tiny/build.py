"""Base model + committed delta -> a plain Hugging Face folder, as `triptych models pull` makes it (infra/delta.py)."""

import shutil
import tempfile
from pathlib import Path

from infra import delta
from workers.engines.omni_tiny.codes import ADDED_TOKENS

DELTA_FILE = "delta.safetensors"
# A token the base model was taught never to say: its row fills the table up to a round size, so that nobody says those.
NEVER_SAID = "<repo_name>"


def build(base: Path, weights: Path, out: Path) -> None:
    """Write the served folder `out` (270 MB, a few seconds). It appears whole or not at all; an old one is replaced.

    `weights` holds delta.safetensors.

    Raises:
        WrongDelta: the delta was not trained on this base model.
        FileNotFoundError: a file is missing.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        made = Path(scratch) / "model"
        made.mkdir()
        delta.apply(base, weights / DELTA_FILE, ADDED_TOKENS, NEVER_SAID, made, lambda done, total: None)
        if out.exists():
            shutil.rmtree(out)
        made.rename(out)
