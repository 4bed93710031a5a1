from pathlib import Path

import pytest

from infra import manifests, model_paths, model_sources
from infra.manifests import UnknownModel, WrongManifest
from infra.settings import load
from schemas.manifest import Manifest

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


def test_weights_that_come_with_triptych_are_those_that_the_manifests_pin() -> None:
    sources = [
        one for model in manifests.load_all(load({})).values() for one in (model.source, *model.weights.values())
    ]
    for source in sources:
        if source.pins:
            assert model_sources.built_in(source).is_dir()


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


SHARING = """
id = "with-eyes"
llm = "some-model"
handoff = "text"
capabilities = ["chat", "image_in"]
[encoders.vision]
engine = "labels-ocr"
yields = "text"
"""
DELTA = """
id = "changed"
[source]
kind = "delta"
base = "some-model"
path = "changed"
pins = { "delta.safetensors" = "%s" }
tokens = ["<|image|>"]
filler = "<pad>"
[limits]
context_tokens = 64
""" % ("0" * 64)


def known(folder: Path, **files: str) -> dict[str, Manifest]:
    for name, text in files.items():
        write(folder, text, f"{name}.toml")
    return manifests.load_all(load({"TRIPTYCH_MANIFEST_DIR": str(folder)}))


def test_a_model_that_names_an_llm_has_the_source_limits_engine_and_partitions_of_that_one(tmp_path: Path) -> None:
    text = GOOD.replace("[source]", "partitions = 3\n[source]") + "[engine]\ncpu_max_running = 5"
    found = known(tmp_path, a=SHARING, b=text)
    one, llm = found["with-eyes"], found["some-model"]
    assert (one.source, one.limits, one.engine, one.partitions) == (llm.source, llm.limits, llm.engine, 3)
    assert one.pool == "some-model" and one.engine.cpu_max_running == 5


def test_a_replaced_built_in_model_is_replaced_for_those_that_share_it_too(tmp_path: Path) -> None:
    found = known(tmp_path, a=GOOD.replace("some-model", "smollm2-135m"))
    assert found["smollm2-cascade"].source.repo == "org/model"


def test_the_source_of_a_delta_says_where_its_base_comes_from(tmp_path: Path) -> None:
    source = known(tmp_path, a=GOOD, b=DELTA)["changed"].source
    assert source.base_source is not None and source.base_source.repo == "org/model"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (SHARING.replace('"some-model"', '"nobody"'), r"llm: no manifest of a model 'nobody' \(allowed: .*some-model"),
        (SHARING.replace('"some-model"', "7"), r"llm: no manifest of a model 7"),
        (SHARING.replace('"some-model"', '"smollm2-cascade"'), r"llm: .* shares .* itself \(allowed: 'smollm2-135m'\)"),
        (
            SHARING.replace("handoff", "partitions = 5\nhandoff"),
            r"partitions: not beside llm; it is that of 'some-model'",
        ),
        (SHARING + "[limits]\ncontext_tokens = 99", r"limits: not beside llm"),
        (
            SHARING.replace('"chat",', '"json",'),
            r"capabilities\[0\]: 'json' is not among those of 'some-model', its LLM",
        ),
        (DELTA.replace('base = "some-model"', 'base = "nobody"'), r"source\.base: no manifest of a model 'nobody'"),
        (
            DELTA.replace('base = "some-model"', 'base = "smollm2-cascade"'),
            r"source\.base: .* has no weights of its own",
        ),
        (DELTA.replace("filler", 'base_source = { kind = "hf" }\nfiller'), r"source\.base_source: never written"),
    ],
)
def test_a_manifest_at_odds_with_another_one_is_refused(tmp_path: Path, wrong: str, said: str) -> None:
    llm = GOOD.replace("[source]", 'capabilities = ["chat"]\n[source]')
    with pytest.raises(WrongManifest, match=said) as refused:
        known(tmp_path, llm=llm, wrong=wrong)
    assert "wrong.toml" in str(refused.value)


def test_a_file_that_leans_on_others_cannot_be_read_alone(tmp_path: Path) -> None:
    with pytest.raises(WrongManifest, match=r"llm: no manifest of a model 'some-model'"):
        manifests.read(write(tmp_path, SHARING))


def test_a_manifest_of_a_folder_needs_an_id(tmp_path: Path) -> None:
    with pytest.raises(WrongManifest, match=r"a\.toml: id: required"):
        known(tmp_path, a=GOOD.replace("id =", "owned_by ="))
