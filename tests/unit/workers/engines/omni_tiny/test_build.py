import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from infra import delta, manifests
from infra.settings import load
from workers.engines.omni_tiny import lora
from workers.engines.omni_tiny.build import DELTA_FILE, NEVER_SAID, build
from workers.engines.omni_tiny.codes import ADDED_TOKENS

LAYER = "model.layers.0.mlp.up_proj.weight"
WIDTH = 4


class Layer(torch.nn.Module):
    """As little of a transformer's layer as low-rank changes are put around."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.mlp.up_proj = torch.nn.Linear(WIDTH, 6, bias=False)


@pytest.fixture
def layers() -> list[Layer]:
    torch.manual_seed(1)
    return [Layer()]


@pytest.fixture
def weights(base: Path, tokenizer: Tokenizer, tmp_path: Path, layers: list[Layer]) -> Path:
    """Fills `base` up to a model around the layer, and trains a delta for it; well, makes one up."""
    own = tokenizer.get_vocab_size() - len(ADDED_TOKENS)
    save_file({delta.EMBEDDINGS: torch.randn(own, WIDTH), LAYER: layers[0].mlp.up_proj.weight}, base / delta.MODEL_FILE)
    (base / "config.json").write_text(json.dumps({"vocab_size": own, "hidden_size": WIDTH}))
    for name in delta.COPIED:
        (base / name).write_text("{}")
    changes = lora.attach(layers, 0)
    torch.nn.init.normal_(changes[LAYER].b)
    folder = tmp_path / "weights"
    folder.mkdir()
    save_file({**lora.tensors(changes), delta.ROWS: torch.randn(len(ADDED_TOKENS), WIDTH)}, folder / DELTA_FILE)
    return folder


def test_the_built_weight_does_what_the_trained_layer_did(
    base: Path, weights: Path, tmp_path: Path, layers: list[Layer]
) -> None:
    build(base, weights, tmp_path / "out")
    x = torch.randn(3, WIDTH)
    merged = load_file(tmp_path / "out" / delta.MODEL_FILE)[LAYER]
    assert torch.allclose(x @ merged.T, layers[0].mlp.up_proj(x), atol=0.02)
    assert not torch.allclose(x @ merged.T, layers[0].mlp.up_proj.base(x), atol=0.02)


def test_an_older_folder_is_replaced_and_nothing_else_is_left(base: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "models" / "out"
    build(base, weights, out)
    (out / "stale").touch()
    build(base, weights, out)
    assert not (out / "stale").exists()
    assert list(out.parent.iterdir()) == [out]


def test_where_the_delta_does_not_fit_nothing_is_written(base: Path, weights: Path, tmp_path: Path) -> None:
    tensors = load_file(base / delta.MODEL_FILE)
    save_file({delta.EMBEDDINGS: tensors[delta.EMBEDDINGS]}, base / delta.MODEL_FILE)
    with pytest.raises(delta.WrongDelta):
        build(base, weights, tmp_path / "models" / "out")
    assert list((tmp_path / "models").iterdir()) == []


def test_an_untrained_change_changes_nothing(layers: list[Layer]) -> None:
    x = torch.randn(3, WIDTH)
    before = layers[0].mlp.up_proj(x)
    assert list(lora.attach(layers, 0)) == [LAYER]
    assert torch.equal(layers[0].mlp.up_proj(x), before)


def test_the_manifest_serves_the_tokens_that_are_trained() -> None:
    source = manifests.load_all(load({}))["triptych-omni-tiny"].source
    assert (source.tokens, source.filler) == (ADDED_TOKENS, NEVER_SAID)
