from pathlib import Path

import pytest

from infra import manifests, model_paths
from infra.manifests import UnknownModel, WrongManifest
from infra.settings import load

GOOD = """
id = "some-model"
[source]
kind = "hf"
repo = "org/model"
[limits]
context_tokens = 4096
"""


def write(folder: Path, text: str, name: str = "one.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_built_in_manifest_is_valid_and_named_after_its_model() -> None:
    known = manifests.load_all(load({}))
    assert {path.stem for path in model_paths.BUILT_IN.glob("*.toml")} == set(known)


def test_the_default_settings_serve_the_small_model() -> None:
    served = manifests.served(load({}))
    assert list(served) == ["smollm2-135m"] and served["smollm2-135m"].source.kind == "pypi-gguf"


def test_a_folder_adds_models_and_replaces_built_in_ones(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, GOOD.replace("some-model", "smollm2-135m"), "other.toml")
    known = manifests.load_all(load({"TRIPTYCH_MANIFEST_DIR": str(tmp_path)}))
    assert known["some-model"].limits.context_tokens == 4096
    assert known["smollm2-135m"].source.kind == "hf"


def test_an_unknown_model_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownModel, match=r"'nope'; known: .*smollm2-135m"):
        manifests.served(load({"TRIPTYCH_MODELS": "smollm2-135m,nope"}))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (GOOD + '[engine]\ncpu_dtype = "int8"', r"engine\.cpu_dtype: .*allowed: bfloat16, float16, float32"),
        (GOOD + "[engine]\ncpu_block_tokens = 48", r"engine\.cpu_block_tokens: .*at least 32, a multiple of 32"),
        (GOOD + "[engine]\nblock = 16", r"engine: .*`block`.*allowed: keys dtype, cpu_dtype"),
        (
            GOOD.replace("4096", '"4096"'),
            r"limits\.context_tokens: Expected `int`, got `str` .*an integer, at least 16",
        ),
        (GOOD.replace("some-model", "Some Model"), r"id: .*allowed: text matching"),
        (GOOD.replace('"hf"', '"ftp"'), r"source\.kind: .*allowed: built-in, delta, hf, pypi-gguf, wheels"),
        (GOOD.replace('repo = "org/model"', ""), r"source\.repo: required for kind 'hf'"),
        (GOOD + 'capabilities = "chat"', r"limits: .*`capabilities`"),
        ('capabilities = ["chat", "sing"]' + GOOD, r"capabilities\[1\]: .*allowed: audio_in, chat, .*json"),
        ("[source]\nkind = 'hf'", r"missing required field `id`.*allowed: keys id, source"),
        (GOOD.replace("[limits]", "[limits"), "not TOML"),
    ],
)
def test_a_faulty_manifest_is_refused_naming_file_key_and_allowed_values(
    tmp_path: Path, broken: str, said: str
) -> None:
    path = write(tmp_path, broken)
    with pytest.raises(WrongManifest, match=said) as refused:
        manifests.read(path)
    assert str(path) in str(refused.value)


def test_the_wheel_of_a_pypi_source_must_have_a_checksum(tmp_path: Path) -> None:
    source = '[source]\nkind = "pypi-gguf"\npackage = "p"\nversion = "1"\nmember = "m.gguf"\n'
    text = GOOD.replace('[source]\nkind = "hf"\nrepo = "org/model"\n', source)
    with pytest.raises(WrongManifest, match=r"source\.sha256: required"):
        manifests.read(write(tmp_path, text))
    with pytest.raises(WrongManifest, match=r"source\.sha256: expected 64"):
        manifests.read(write(tmp_path, text.replace("[limits]", 'sha256 = "abc"\n[limits]')))


def test_two_manifests_of_one_folder_must_not_share_an_id(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, GOOD, "two.toml")
    with pytest.raises(WrongManifest, match=r"two\.toml: id: 'some-model' is taken"):
        manifests.load_all(load({"TRIPTYCH_MANIFEST_DIR": str(tmp_path)}))


def test_a_missing_folder_of_manifests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WrongManifest, match="no such folder"):
        manifests.load_all(load({"TRIPTYCH_MANIFEST_DIR": str(tmp_path / "nowhere")}))
