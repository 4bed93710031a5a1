"""The tokenizer inside a GGUF file, as the `tokenizer.json` it was made from.

transformers' own GGUF conversion forgets `tokenizer.ggml.pre`, the rule that cuts text before BPE. For SmolLM that rule
takes each digit alone, so "a  2" is cut as ["a  ", "2"] and its spaces stay one token; without it they come out as two
and the model reads something it was not trained on. Hence our own, which refuses a rule it does not know.
"""

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

# llama.cpp's token types (llama.h): the ones that are matched in text before BPE.
_CONTROL, _USER_DEFINED = 3, 4


class UnsupportedGguf(Exception):
    """A GGUF file we cannot convert exactly; the message says which part."""


def build(metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer; ids are those of the file.

    Raises:
        UnsupportedGguf: it is no byte-level BPE, or its rule for cutting text is unknown.
    """
    kind = metadata["tokenizer.ggml.model"]
    if kind != "gpt2":
        raise UnsupportedGguf(f"tokenizer.ggml.model {kind!r}; only byte-level BPE (gpt2) is supported")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges, fuse_unk=False))
    tokenizer.pre_tokenizer = _pre_tokenizer(metadata.get("tokenizer.ggml.pre", "default"))
    tokenizer.decoder = decoders.ByteLevel()
    for token, token_type in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True):
        if token_type == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif token_type == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    return tokenizer


def describe(metadata: dict[str, Any]) -> dict[str, Any]:
    """The contents of tokenizer_config.json. The class named there reads tokenizer.json as it is."""
    tokens = metadata["tokenizer.ggml.tokens"]
    special = {
        f"{name}_token": tokens[metadata[key]]
        for name, key in (
            ("bos", "tokenizer.ggml.bos_token_id"),
            ("eos", "tokenizer.ggml.eos_token_id"),
            ("unk", "tokenizer.ggml.unknown_token_id"),
            ("pad", "tokenizer.ggml.padding_token_id"),
        )
        if key in metadata
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "chat_template": metadata.get("tokenizer.chat_template", ""),
        **special,
    }


def _pre_tokenizer(rule: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    match rule:
        case "smollm":
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        case "gpt-2":
            return byte_level
        case _:
            raise UnsupportedGguf(f"tokenizer.ggml.pre {rule!r}; known: gpt-2, smollm")
