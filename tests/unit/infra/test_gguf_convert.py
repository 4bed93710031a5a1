import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from infra import gguf_convert, model_files
from infra.gguf_tokenizer import UnsupportedGguf
from tests.unit.infra import tiny_gguf


def convert(tmp_path: Path, **options: str) -> Path:
    tiny_gguf.write(tmp_path / "tiny.gguf", **options)
    folder = tmp_path / "out"
    folder.mkdir()
    gguf_convert.convert(tmp_path / "tiny.gguf", folder, lambda done, total: None)
    return folder


def test_weights_get_their_hugging_face_names_and_row_order_back(tmp_path: Path) -> None:
    found = load_file(convert(tmp_path) / "model.safetensors")
    wanted = tiny_gguf.weights()
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == np.float16
        np.testing.assert_array_equal(found[name].astype(np.float32), values, err_msg=name)


def test_the_folder_is_one_that_the_gateway_can_read(tmp_path: Path) -> None:
    folder = convert(tmp_path)
    files = model_files.read(folder)
    assert files.eos_ids == {2} and files.vocab_size == len(tiny_gguf.tokens()) and files.max_context_tokens == 64
    assert files.chat_template == "{{ messages }}" and files.special.bos == "<|im_start|>"
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"] is True and config["rms_norm_eps"] == 1e-5 and config["head_dim"] == 4


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedGguf, match="architecture 'qwen2'"):
        convert(tmp_path, architecture="qwen2")
