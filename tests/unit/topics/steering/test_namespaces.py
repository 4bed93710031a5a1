"""What a prompt's keys depend on besides its tokens."""

from pathlib import Path

import msgspec
import pytest

from infra.model_files import ModelMissing
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.manifest import EngineConfig, Limits, Manifest, Source
from topics.steering import namespaces
from topics.steering.blocks import begin

BASE = Source("hf", repo="o/m", revision="r")
DELTA = Source("delta", path="p", pins={"delta.safetensors": "1a"}, base="m", base_source=BASE)
MANIFEST = Manifest("m", BASE, Limits(context_tokens=2048))


def with_source(source: Source) -> Manifest:
    return msgspec.structs.replace(MANIFEST, source=source)


def with_engine(**changes: str) -> Manifest:
    return msgspec.structs.replace(MANIFEST, engine=EngineConfig(**changes))  # type: ignore[arg-type]


OTHERS = {
    "another revision of the weights": with_source(msgspec.structs.replace(BASE, revision="s")),
    "another repository": with_source(msgspec.structs.replace(BASE, repo="o/n")),
    "an adapter": with_source(DELTA),
    "another adapter": with_source(msgspec.structs.replace(DELTA, pins={"delta.safetensors": "2b"})),
    "the adapter on another base": with_source(
        msgspec.structs.replace(DELTA, base_source=msgspec.structs.replace(BASE, revision="s"))
    ),
    "a number format": with_engine(dtype="float16"),
    "a number format without a GPU": with_engine(cpu_dtype="bfloat16"),
}


def test_each_part_of_a_manifest_that_the_cache_depends_on_makes_another_namespace() -> None:
    plain = [namespaces.plain(one, "template") for one in (MANIFEST, *OTHERS.values())]
    assert len(set(plain)) == len(plain)
    assert namespaces.plain(with_source(DELTA), "template").lora != ""


def test_what_the_cache_does_not_depend_on_makes_no_other_namespace() -> None:
    same = msgspec.structs.replace(MANIFEST, partitions=3, owned_by="me", created=7)
    assert namespaces.plain(same, "template") == namespaces.plain(MANIFEST, "template")


def test_tenants_share_nothing_with_each_other_nor_with_those_that_share() -> None:
    def root(tenant: str) -> bytes:
        head = Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="", tenant=tenant)
        return begin(namespaces.of(space.plain, GenerateJob(head, [1], Sampling(max_tokens=1)))).root

    space = namespaces.key_space(MANIFEST, "template")
    assert len({root("a"), root("b"), root("")}) == 3
    assert root("") == begin(space.plain).root


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "tokenizer_config.json").write_text('{"chat_template": "one"}')
    return tmp_path


def test_the_template_is_that_of_the_models_files(model_dir: Path) -> None:
    first = namespaces.of_model(MANIFEST, model_dir)
    assert first == namespaces.key_space(MANIFEST, "one")
    (model_dir / "m" / "chat_template.jinja").write_text("two")
    assert namespaces.of_model(MANIFEST, model_dir) == namespaces.key_space(MANIFEST, "two") != first


def test_a_model_that_is_not_there_has_no_keys(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="models pull"):
        namespaces.of_model(MANIFEST, tmp_path)
