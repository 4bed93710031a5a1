"""A prompt with embeddings as vLLM takes it. Importing this file imports torch: only `vllm_backend.py` does."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from vllm.inputs import embeds_input

from schemas.jobs import GenerateJob
from workers.engine import Item, Rows
from workers.engines.vllm_items import items_of

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def mixed(
    job: GenerateJob, rows: Sequence[Rows], width: int, dtype: torch.dtype, salt: str
) -> tuple[Any, torch.Tensor]:
    """The prompt, and the rows of all its positions. Blocks for milliseconds per megabyte: use a thread.

    Raises:
        ValueError: a row holds something that is no finite number in the engine's dtype.
    """
    full = torch.zeros(len(job.prompt_ids), width, dtype=dtype)
    is_token = [True] * len(job.prompt_ids)
    for one in rows:
        end = one.offset + one.length
        full[one.offset : end] = _tensor(one, dtype)
        is_token[one.offset : end] = [False] * one.length
    prompt = embeds_input(full, prompt_token_ids=job.prompt_ids, is_token_ids=is_token, cache_salt=salt)
    return prompt, full


def blocks(
    job: GenerateJob, rows: Sequence[Rows], full: torch.Tensor, block_tokens: int
) -> Iterator[tuple[bytes, tuple[Item, ...]]]:
    """For each whole block of the prompt: the digest that vLLM will know its rows by, and what lies in it."""
    ordered = sorted(rows, key=lambda one: one.offset)
    empty: bytes | None = None  # most blocks have no rows, and all of those the same digest
    for start in range(0, len(job.prompt_ids) - block_tokens + 1, block_tokens):
        items = items_of(ordered, job.prompt_ids, start, block_tokens)
        if items or empty is None:
            digest = _digest(full[start : start + block_tokens])
            empty = empty if items else digest
            yield digest, items


def _digest(rows: torch.Tensor) -> bytes:
    return hashlib.sha256(rows.view(torch.uint8).numpy()).digest()


def _tensor(rows: Rows, dtype: torch.dtype) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(rows.data), dtype=_DTYPES[rows.dtype]).view(rows.length, rows.width)
    cast = raw.to(dtype)
    if not bool(torch.isfinite(cast).all()):
        raise ValueError(f"the rows of the item at position {rows.offset} are not finite numbers")
    # vLLM tells tokens from rows by the bytes alone, and a token's are zeros: a row's own zeros are negative ones.
    return torch.where(cast == 0, torch.tensor(-0.0, dtype=dtype), cast)
