import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

from infra import delta
from infra.delta import WrongDelta

WEIGHT = "model.layers.0.mlp.up_proj.weight"
VOCABULARY = {"a": 0, "b": 1, "<unsaid>": 2}
Arrays = dict[str, np.ndarray]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    Tokenizer(models.WordLevel(VOCABULARY, unk_token="a")).save(str(folder / "tokenizer.json"))
    save_file(
        {delta.EMBEDDINGS: np.arange(6, dtype=np.float16).reshape(3, 2), WEIGHT: np.ones((4, 2), np.float16)},
        folder / delta.MODEL_FILE,
    )
    (folder / "config.json").write_text(json.dumps({"vocab_size": 3, "hidden_size": 2}))
    for name in delta.COPIED:
        (folder / name).write_text("{}")
    return folder


def apply(base: Path, changes: Arrays, tokens: tuple[str, ...] = ("<x>", "<y>"), filler: str = "<unsaid>") -> Path:
    save_file(changes, base.parent / "delta.safetensors")
    made = base.parent / "made"
    made.mkdir()
    delta.apply(base, base.parent / "delta.safetensors", tokens, filler, made, lambda done, total: None)
    return made


def good() -> Arrays:
    return {
        delta.ROWS: np.full((2, 2), 7, np.float16),
        f"{WEIGHT}.a": np.array([[1, 2]], np.float16),
        f"{WEIGHT}.b": np.array([[0], [1], [2], [3]], np.float16),
    }


def test_the_product_of_two_thin_matrices_is_added_in_the_bases_own_type(base: Path) -> None:
    weight = load_file(apply(base, good()) / delta.MODEL_FILE)[WEIGHT]
    assert weight.dtype == np.float16 and weight.tolist() == [[1, 1], [2, 3], [3, 5], [4, 7]]


def test_new_rows_follow_the_bases_own_and_the_rest_is_a_row_that_nobody_says(base: Path) -> None:
    made = apply(base, good())
    table = load_file(made / delta.MODEL_FILE)[delta.EMBEDDINGS]
    assert table.shape == (delta.MULTIPLE, 2)
    assert table[:3].tolist() == [[0, 1], [2, 3], [4, 5]] and (table[3:5] == 7).all() and (table[5:] == [4, 5]).all()
    assert json.loads((made / "config.json").read_text()) == {"vocab_size": delta.MULTIPLE, "hidden_size": 2}


def test_the_tokenizer_gives_the_new_tokens_the_next_ids_and_never_splits_them(base: Path) -> None:
    tokenizer = Tokenizer.from_file(str(apply(base, good()) / "tokenizer.json"))
    assert (tokenizer.token_to_id("<x>"), tokenizer.token_to_id("<y>")) == (3, 4)
    assert tokenizer.encode("<y><x>").ids == [4, 3]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"other.a": np.ones((1, 2), np.float16), "other.b": np.ones((4, 1), np.float16)}, "no weight other"),
        ({f"{WEIGHT}.a": np.ones((1, 3), np.float16)}, r"is \[4, 2\], its change \[4, 3\]"),
        ({delta.ROWS: np.ones((1, 2), np.float16)}, "3 . 1 embedding rows for a vocabulary of 5"),
    ],
)  # fmt: skip
def test_changes_of_another_model_are_refused(base: Path, broken: Arrays, said: str) -> None:
    with pytest.raises(WrongDelta, match=said):
        apply(base, good() | broken)


def test_a_filler_that_is_no_token_is_refused(base: Path) -> None:
    with pytest.raises(WrongDelta, match="no token '<nope>'"):
        apply(base, good(), filler="<nope>")
