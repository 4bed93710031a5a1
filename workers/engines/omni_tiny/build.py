"""Base model + committed delta -> a plain Hugging Face folder, the one vLLM and the gateway's tokenizer load."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from workers.engines.omni_tiny import lora, vocabulary

DELTA_FILE = "delta.safetensors"
ROWS_KEY = "embed_tokens.added"
MODEL_FILE, EMBEDDINGS = "model.safetensors", "model.embed_tokens.weight"
COPIED = ("generation_config.json", "tokenizer_config.json")
# A token the base model was taught never to say: its row fills the table up to a round size, so that nobody says those.
NEVER_SAID = "<repo_name>"


class WrongBase(Exception):
    """The base folder is not the model that the delta was trained on; the message says what differs."""


def build(base: Path, weights: Path, out: Path) -> None:
    """Write the served folder `out` (270 MB, a few seconds). It appears whole or not at all; an old one is replaced.

    `weights` holds delta.safetensors; the base model's types are kept.

    Raises:
        WrongBase: a tensor of the delta has no place in the base model.
        FileNotFoundError: a file is missing.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        made = Path(scratch) / "model"
        made.mkdir()
        tokenizer = vocabulary.tokenizer(base)
        tokenizer.save(str(made / "tokenizer.json"))
        tensors = _merged(load_file(base / MODEL_FILE), load_file(weights / DELTA_FILE), tokenizer)
        save_file(tensors, made / MODEL_FILE, metadata={"format": "pt"})
        _write_config(base, made, len(tensors[EMBEDDINGS]))
        for name in COPIED:
            shutil.copyfile(base / name, made / name)
        if out.exists():
            shutil.rmtree(out)
        made.rename(out)


def _merged(base: dict[str, Any], delta: dict[str, Any], tokenizer: Any) -> dict[str, torch.Tensor]:
    changed = {name.removesuffix(".a") for name in delta if name.endswith(".a")}
    if missing := sorted(changed - set(base)):
        raise WrongBase(f"the base model has no {missing[0]}")
    tensors = dict(base)
    for name in changed:
        tensors[name] = lora.merged(base[name], delta[f"{name}.a"], delta[f"{name}.b"])
    tensors[EMBEDDINGS] = _extended(base[EMBEDDINGS], delta[ROWS_KEY], tokenizer)
    return tensors


def _extended(table: torch.Tensor, rows: torch.Tensor, tokenizer: Any) -> torch.Tensor:
    size = tokenizer.get_vocab_size()
    if len(table) + len(rows) != size:
        raise WrongBase(f"{len(table)} + {len(rows)} embedding rows for a vocabulary of {size}")
    filler = table[tokenizer.token_to_id(NEVER_SAID)].expand(vocabulary.padded(size) - size, -1)
    return torch.cat([table, rows.to(table.dtype), filler]).contiguous()


def _write_config(base: Path, out: Path, vocab_size: int) -> None:
    config = json.loads((base / "config.json").read_text("utf-8"))
    (out / "config.json").write_text(json.dumps({**config, "vocab_size": vocab_size}, indent=2) + "\n", "utf-8")
