"""A GGUF file small enough to make in a test: two heads, one layer, a vocabulary of bytes and a few merges."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]

HEADS, KV_HEADS, HIDDEN, FEED_FORWARD = 2, 1, 8, 12
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "Ġ t", "h e", "Ġt he"]
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]


def tokens() -> list[str]:
    others = [chr(0x100 + i) for i in range(256 - len(_PRINTABLE))]
    return [*SPECIAL, *(chr(byte) for byte in _PRINTABLE), *others, *(merge.replace(" ", "") for merge in MERGES)]


def metadata(pre: str = "smollm") -> dict[str, Any]:
    """The part of the header that describes the tokenizer, as the reader gives it."""
    vocabulary = tokens()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(vocabulary) - len(SPECIAL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}",
        "llama.context_length": 64,
    }


def weights() -> dict[str, Array]:
    """The weights as Hugging Face names and orders them."""
    random = np.random.default_rng(0)
    shapes = {
        "model.embed_tokens.weight": (len(tokens()), HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "model.layers.0.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        "model.layers.0.self_attn.k_proj.weight": (HIDDEN // HEADS * KV_HEADS, HIDDEN),
        "model.layers.0.mlp.down_proj.weight": (HIDDEN, FEED_FORWARD),
    }
    return {name: random.standard_normal(shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()}


def _shuffled(rows: Array, heads: int) -> Array:
    """What llama.cpp does to q and k when it writes GGUF."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def write(path: Path, pre: str = "smollm", architecture: str = "llama") -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens()))
    described = metadata(pre)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(described["tokenizer.ggml.tokens"])
    writer.add_token_types(described["tokenizer.ggml.token_type"])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(described["tokenizer.chat_template"])
    there = weights()
    writer.add_tensor("token_embd.weight", there["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", there["model.norm.weight"])
    writer.add_tensor("blk.0.attn_q.weight", _shuffled(there["model.layers.0.self_attn.q_proj.weight"], HEADS))
    writer.add_tensor("blk.0.attn_k.weight", _shuffled(there["model.layers.0.self_attn.k_proj.weight"], KV_HEADS))
    writer.add_tensor("blk.0.ffn_down.weight", there["model.layers.0.mlp.down_proj.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
