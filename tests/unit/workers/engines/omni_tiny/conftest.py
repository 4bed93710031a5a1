from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from workers.engines.omni_tiny import vocabulary


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base model's folder with its tokenizer: bytes for words, which is enough to see where things are."""
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre.alphabet())
    plain = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    plain.pre_tokenizer, plain.decoder = pre, decoders.ByteLevel()
    plain.add_special_tokens(["<|im_start|>", "<|im_end|>", "<repo_name>"])
    folder = tmp_path / "base"
    folder.mkdir()
    plain.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def tokenizer(base: Path) -> Tokenizer:
    return vocabulary.tokenizer(base)
