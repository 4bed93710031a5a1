"""A base model and a small file of changes become a plain Hugging Face folder: with numpy alone, without torch.

The file holds, for each changed weight, `<weight>.a` and `<weight>.b`, whose product b a is added to it, and
`embed_tokens.added`, the rows of the tokens that are new.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer

Array = np.ndarray[Any, np.dtype[Any]]
Progress = Callable[[int, int], None]

ROWS = "embed_tokens.added"
MODEL_FILE, EMBEDDINGS = "model.safetensors", "model.embed_tokens.weight"
COPIED = ("generation_config.json", "tokenizer_config.json")
MULTIPLE = 64  # vLLM pads an embedding table to this; one that fits already needs no padding there


class WrongDelta(Exception):
    """The changes do not belong to this base model; the message says what does not fit."""


def apply(base: Path, changes: Path, tokens: Sequence[str], filler: str, folder: Path, progress: Progress) -> None:
    """Write the model into an existing folder. Deterministic; the base's number types are kept.

    Raises:
        WrongDelta. FileNotFoundError: the base folder lacks a file.
    """
    tokenizer = extended_tokenizer(base, tokens)
    tensors = load_file(base / MODEL_FILE)
    delta = load_file(changes)
    changed = sorted(name.removesuffix(".a") for name in delta if name.endswith(".a"))
    for done, name in enumerate(changed, start=1):
        tensors[name] = _changed(name, tensors, delta)
        progress(done, len(changed))
    tensors[EMBEDDINGS] = _longer(tensors[EMBEDDINGS], delta[ROWS], tokenizer, filler)
    save_file(tensors, folder / MODEL_FILE, metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((base / "config.json").read_text("utf-8"))
    config["vocab_size"] = len(tensors[EMBEDDINGS])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    for name in COPIED:
        shutil.copyfile(base / name, folder / name)


def extended_tokenizer(base: Path, tokens: Sequence[str]) -> Any:
    """The tokenizer in `base` with `tokens` after all of its own, each one never split."""
    made = Tokenizer.from_file(str(base / "tokenizer.json"))
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in tokens])
    return made


def _changed(name: str, tensors: dict[str, Array], delta: dict[str, Array]) -> Array:
    if name not in tensors:
        raise WrongDelta(f"the base model has no weight {name}")
    weight, a, b = tensors[name], delta[f"{name}.a"].astype(np.float32), delta[f"{name}.b"].astype(np.float32)
    if weight.shape != (len(b), a.shape[1]):
        raise WrongDelta(f"{name} is {list(weight.shape)}, its change {[len(b), a.shape[1]]}")
    return np.asarray(weight.astype(np.float32) + b @ a).astype(weight.dtype)


def _longer(table: Array, rows: Array, tokenizer: Any, filler: str) -> Array:
    """The embedding table with the new rows, filled up to a multiple of MULTIPLE."""
    size = tokenizer.get_vocab_size()
    if len(table) + len(rows) != size:
        raise WrongDelta(f"{len(table)} + {len(rows)} embedding rows for a vocabulary of {size}")
    unsaid = tokenizer.token_to_id(filler)
    if unsaid is None:
        raise WrongDelta(f"the base model has no token {filler!r}")
    missing = -size % MULTIPLE
    return np.concatenate([table, rows.astype(table.dtype), np.repeat(table[unsaid : unsaid + 1], missing, axis=0)])
