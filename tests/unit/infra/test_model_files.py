import json
from pathlib import Path
from typing import Any

import pytest

from infra import model_files
from infra.model_files import ModelMissing, SpecialTokens

CONFIG = {"vocab_size": 100, "max_position_embeddings": 64, "eos_token_id": 2}
TOKENIZER: dict[str, Any] = {
    "eos_token": "</s>",
    "bos_token": {"content": "<s>", "lstrip": False},
    "chat_template": "{{ messages }}",
}


def folder(path: Path, config: object = CONFIG, tokenizer: object = TOKENIZER, **others: object) -> Path:
    (path / "tokenizer.json").write_text("{}")
    for name, value in {"config": config, "tokenizer_config": tokenizer, **others}.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def test_it_reads_what_the_gateway_needs(tmp_path: Path) -> None:
    files = model_files.read(folder(tmp_path))
    assert files.special == SpecialTokens(bos="<s>", eos="</s>")
    assert files.chat_template == "{{ messages }}"
    assert files.eos_ids == {2} and files.vocab_size == 100 and files.max_context_tokens == 64
    assert files.tokenizer_json == tmp_path / "tokenizer.json"


def test_the_generation_config_decides_which_ids_end_an_answer(tmp_path: Path) -> None:
    files = model_files.read(folder(tmp_path, generation_config={"eos_token_id": [2, 7]}))
    assert files.eos_ids == {2, 7}


def test_a_template_file_beside_the_config_wins(tmp_path: Path) -> None:
    (folder(tmp_path) / "chat_template.jinja").write_text("from the file")
    assert model_files.read(tmp_path).chat_template == "from the file"


def test_of_several_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert model_files.read(folder(tmp_path, tokenizer={"chat_template": named})).chat_template == "d"


def test_a_multi_modal_config_keeps_its_language_model_under_text_config(tmp_path: Path) -> None:
    config = {"text_config": {"vocab_size": 5, "max_position_embeddings": 6}, "eos_token_id": [1]}
    files = model_files.read(folder(tmp_path, config=config))
    assert (files.vocab_size, files.max_context_tokens, files.eos_ids) == (5, 6, {1})


@pytest.mark.parametrize("missing", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    (folder(tmp_path) / missing).unlink()
    with pytest.raises(ModelMissing, match=missing):
        model_files.read(tmp_path)


def test_a_config_without_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="vocab_size"):
        model_files.read(folder(tmp_path, config={}))
