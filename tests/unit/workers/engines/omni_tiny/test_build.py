import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from infra import manifests
from infra.delta import EMBEDDINGS, MODEL_FILE, MULTIPLE, ROWS, WrongDelta
from infra.settings import load
from workers.engines.omni_tiny.build import DELTA_FILE, NEVER_SAID, build
from workers.engines.omni_tiny.codes import ADDED_TOKENS, BEGIN, END, FIRST_CODE
from workers.engines.omni_tiny.lessons import PICTURE_IN
from workers.engines.omni_tiny.vision import ROWS as ROWS_OF_A_PICTURE

LAYER = "model.layers.1.mlp.up_proj.weight"
WIDTH, RANK = 4, 2


@pytest.fixture
def weights(base: Path, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """Fills `base` up to a model, and makes a delta for it."""
    torch.manual_seed(1)
    own = tokenizer.get_vocab_size() - len(ADDED_TOKENS)
    save_file({EMBEDDINGS: torch.randn(own, WIDTH).half(), LAYER: torch.randn(6, WIDTH).half()}, base / MODEL_FILE)
    (base / "config.json").write_text(json.dumps({"vocab_size": own, "hidden_size": WIDTH}))
    for name in ("generation_config.json", "tokenizer_config.json"):
        (base / name).write_text("{}")
    delta = {
        f"{LAYER}.a": torch.randn(RANK, WIDTH).half(),
        f"{LAYER}.b": torch.randn(6, RANK).half(),
        ROWS: torch.randn(len(ADDED_TOKENS), WIDTH).half(),
    }
    folder = tmp_path / "weights"
    folder.mkdir()
    save_file(delta, folder / DELTA_FILE)
    return folder


def test_the_change_is_added_to_the_base_weight_in_its_own_type(base: Path, weights: Path, tmp_path: Path) -> None:
    build(base, weights, tmp_path / "out")
    before, delta = load_file(base / MODEL_FILE), load_file(weights / DELTA_FILE)
    after = load_file(tmp_path / "out" / MODEL_FILE)[LAYER]
    wanted = before[LAYER].float() + delta[f"{LAYER}.b"].float() @ delta[f"{LAYER}.a"].float()
    assert after.dtype == torch.float16
    assert torch.allclose(after.float(), wanted, atol=5e-3)


def test_added_rows_stand_at_the_ids_of_their_tokens_and_the_table_is_filled_up(
    base: Path, weights: Path, tmp_path: Path
) -> None:
    build(base, weights, tmp_path / "out")
    table = load_file(tmp_path / "out" / MODEL_FILE)[EMBEDDINGS]
    made = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    rows = load_file(weights / DELTA_FILE)[ROWS]
    for name, row in zip(ADDED_TOKENS, rows, strict=True):
        assert torch.equal(table[made.token_to_id(name)], row)
    assert len(table) % MULTIPLE == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == len(table)
    never = table[made.token_to_id("<repo_name>")]
    assert all(torch.equal(row, never) for row in table[made.get_vocab_size() :])


def test_an_older_folder_is_replaced_and_nothing_else_is_left(base: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "models" / "out"
    for _ in range(2):
        build(base, weights, out)
        (out / "stale").touch()
    build(base, weights, out)
    assert not (out / "stale").exists()
    assert list(out.parent.iterdir()) == [out]


def test_a_base_model_without_a_changed_weight_is_refused_and_nothing_is_written(
    base: Path, weights: Path, tmp_path: Path
) -> None:
    tensors = load_file(base / MODEL_FILE)
    save_file({EMBEDDINGS: tensors[EMBEDDINGS]}, base / MODEL_FILE)
    with pytest.raises(WrongDelta, match="no weight model"):
        build(base, weights, tmp_path / "models" / "out")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_base_model_of_another_vocabulary_is_refused(base: Path, weights: Path, tmp_path: Path) -> None:
    tensors = load_file(base / MODEL_FILE)
    save_file({**tensors, EMBEDDINGS: tensors[EMBEDDINGS][:-1].clone()}, base / MODEL_FILE)
    with pytest.raises(WrongDelta, match="embedding rows"):
        build(base, weights, tmp_path / "out")


def test_the_manifest_adds_the_tokens_that_the_model_was_trained_with() -> None:
    manifest = manifests.find(load({}), "triptych-omni-tiny")
    assert (manifest.source.tokens, manifest.source.filler) == (ADDED_TOKENS, NEVER_SAID)
    eyes, brush = manifest.encoders["vision"], manifest.decoders["image"]
    assert eyes.before + eyes.placeholder * ROWS_OF_A_PICTURE + eyes.after == PICTURE_IN
    assert (brush.begin, brush.end) == (BEGIN, END)
    assert (brush.first, brush.last) == (ADDED_TOKENS[FIRST_CODE], ADDED_TOKENS[-1])
