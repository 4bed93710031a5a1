"""A GGUF file becomes a plain Hugging Face folder: with numpy alone, without torch.

Weights are written as float16. They were 4-bit numbers (scale x q + minimum), which float16 keeps to 1 part in 4,096
(bfloat16 to 1 in 512) at half of float32's size; against the 1 part in 30 that quantisation lost, this is nothing.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
from safetensors.numpy import save_file

from infra import gguf_tokenizer
from infra.gguf_tokenizer import UnsupportedGguf

Progress = Callable[[int, int], None]
Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def convert(source: Path, folder: Path, progress: Progress) -> None:
    """Write config, generation config, tokenizer and weights into an existing folder. Deterministic.

    Raises:
        UnsupportedGguf: no Llama architecture, or a tensor or tokenizer we do not know.
    """
    reader = gguf.GGUFReader(source)
    metadata = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    if metadata["general.architecture"] != "llama":
        raise UnsupportedGguf(f"architecture {metadata['general.architecture']!r}; only llama is supported")
    tensors = dict(_tensors(reader, metadata, progress))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(metadata, tied="lm_head.weight" not in tensors))
    _write_json(folder / "generation_config.json", _token_ids(metadata))
    _write_json(folder / "tokenizer_config.json", gguf_tokenizer.describe(metadata))
    gguf_tokenizer.build(metadata).save(str(folder / "tokenizer.json"))


def _tensors(reader: gguf.GGUFReader, metadata: dict[str, Any], progress: Progress) -> Iterator[tuple[str, Array]]:
    heads = {"attn_q": metadata["llama.attention.head_count"], "attn_k": metadata["llama.attention.head_count_kv"]}
    for done, tensor in enumerate(reader.tensors, start=1):
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if block and block[2] in heads:
            values = _split_halves(values, heads[block[2]])
        yield _name(tensor.name, block), values.astype(np.float16)
        progress(done, len(reader.tensors))


def _name(name: str, block: re.Match[str] | None) -> str:
    if block and block[2] in _BLOCK_NAMES:
        return f"model.layers.{block[1]}.{_BLOCK_NAMES[block[2]]}.weight"
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name]
    raise UnsupportedGguf(f"tensor {name!r} has no place in a Llama model")


def _split_halves(values: Array, heads: int) -> Array:
    """llama.cpp rotates neighbouring rows, Hugging Face the halves of a head: undo that shuffle."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _config(metadata: dict[str, Any], tied: bool) -> dict[str, Any]:
    heads = metadata["llama.attention.head_count"]
    hidden = metadata["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "max_position_embeddings": metadata["llama.context_length"],
        # GGUF stores float32; the shortest decimal that reads back as it is the number the model was trained with.
        "rms_norm_eps": float(str(np.float32(metadata["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_theta": metadata["llama.rope.freq_base"],
        "tie_word_embeddings": tied,
        "vocab_size": metadata["llama.vocab_size"],
        **_token_ids(metadata),
    }


def _token_ids(metadata: dict[str, Any]) -> dict[str, int]:
    return {
        f"{name}_token_id": metadata[key]
        for name, key in (
            ("bos", "tokenizer.ggml.bos_token_id"),
            ("eos", "tokenizer.ggml.eos_token_id"),
            ("pad", "tokenizer.ggml.padding_token_id"),
        )
        if key in metadata
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))
