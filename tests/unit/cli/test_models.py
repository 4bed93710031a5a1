import io
from pathlib import Path

import pytest
from rich.console import Console

from cli import models
from cli.errors import CommandFailed
from infra import manifests
from infra.settings import load


@pytest.mark.parametrize(
    ("name", "model", "revision"),
    [("hf:Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b-instruct", "main"), ("hf:a/B@v1.0", "b", "v1.0")],
)
def test_a_hub_name_becomes_a_manifest(name: str, model: str, revision: str) -> None:
    manifest = models.from_hub(name)
    assert (manifest.id, manifest.source.revision) == (model, revision)


@pytest.mark.parametrize("name", ["hf:", "hf:model", "hf:a/b/c", "hf:a/b@"])
def test_what_is_no_hub_name_is_refused_with_the_form_it_should_have(name: str) -> None:
    with pytest.raises(CommandFailed, match="hf:<organisation>/<model>"):
        models.from_hub(name)


def test_a_written_manifest_is_read_back_as_it_was(tmp_path: Path) -> None:
    manifest = models.from_hub("hf:a/b@v1")
    assert manifests.read(models.write_manifest(manifest, tmp_path / "new")) == manifest


def test_a_manifest_that_somebody_edited_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("mine")
    models.write_manifest(models.from_hub("hf:a/b"), tmp_path)
    assert (tmp_path / "b.toml").read_text() == "mine"


def test_the_list_says_whose_llm_and_which_weights_a_model_has(tmp_path: Path) -> None:
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(models.table(load({"TRIPTYCH_MODEL_DIR": str(tmp_path)})))
    row = next(line for line in console.export_text().splitlines() if "smollm2-cascade" in line)
    assert "no: triptych models pull smollm2-cascade" in row
    assert "the LLM of smollm2-135m; efficientnet-lite0, whisper-base" in row
