import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from infra import manifests
from workers import training
from workers.engines.omni_tiny import train
from workers.engines.omni_tiny.train import MADE


def _manifest() -> str:
    return (manifests.BUILT_IN / "triptych-omni-tiny.toml").read_text("utf-8")


def test_the_lines_to_put_into_the_manifest_are_those_that_are_in_it(tmp_path: Path) -> None:
    committed = manifests.BUILT_IN / "triptych-omni-tiny"
    for name in MADE:
        (tmp_path / name).write_bytes((committed / name).read_bytes())
    lines = [line.strip() for line in train.how_to_serve(tmp_path).splitlines() if line.strip().startswith("pins")]
    assert len(lines) == len(MADE)
    assert all(line in _manifest() for line in lines)


def test_other_weights_have_other_lines(tmp_path: Path) -> None:
    for name in MADE:
        (tmp_path / name).write_bytes(b"other")
    said = train.how_to_serve(tmp_path)
    assert said.count(hashlib.sha256(b"other").hexdigest()) == len(MADE)
    assert f"cp {tmp_path}/*.safetensors {manifests.BUILT_IN}/triptych-omni-tiny/" in said


def test_a_training_that_is_interrupted_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(base: Path, out: Path, seed: int, quick: bool, say: Callable[[str], None]) -> None:
        (out / MADE[0]).write_bytes(b"new")
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_train_parts", half)
    monkeypatch.setattr(training.signal, "signal", lambda *_: None)  # pytest keeps its own
    base, out = tmp_path / "base", tmp_path / "out"
    base.mkdir()
    (base / "model.safetensors").touch()
    out.mkdir()
    (out / MADE[0]).write_bytes(b"old")
    assert training.main(["omni-tiny", "--out", str(out), "--base", str(base)], tmp_path) == 130
    assert [one.name for one in out.iterdir()] == [MADE[0]]
    assert (out / MADE[0]).read_bytes() == b"old"
    assert "interrupted" in capsys.readouterr().err
