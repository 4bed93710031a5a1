"""Messages evolve by one rule (schemas/jobs.py): what was sent once can be read for ever."""

import json
from typing import Any

import msgspec
import pytest

from schemas import codec
from tests.unit.schemas.samples import FIELDS, GOLDEN, SAMPLES, WIRE, field_names


@pytest.mark.parametrize("name", SAMPLES)
def test_old_bytes_mean_what_they_meant(name: str) -> None:
    sample = SAMPLES[name]
    assert msgspec.msgpack.decode((GOLDEN / f"{name}.msgpack").read_bytes(), type=type(sample)) == sample


@pytest.mark.parametrize("name", SAMPLES)
def test_an_older_reader_finds_in_new_bytes_all_that_it_knows(name: str) -> None:
    old = msgspec.msgpack.decode((GOLDEN / f"{name}.msgpack").read_bytes())
    assert_contains(msgspec.msgpack.decode(codec.encode(SAMPLES[name])), old)


def assert_contains(new: Any, old: Any) -> None:
    """Maps may have got more keys and arrays more at their end; all else is as it was."""
    if isinstance(old, dict):
        for key, value in old.items():
            assert_contains(new[key], value)
    elif isinstance(old, list):
        assert len(new) >= len(old)
        for new_one, old_one in zip(new, old, strict=False):
            assert_contains(new_one, old_one)
    else:
        assert new == old


@pytest.mark.parametrize("kind", WIRE, ids=lambda kind: kind.__name__)
def test_fields_are_never_renamed_or_moved_and_new_ones_have_defaults(kind: type[msgspec.Struct]) -> None:
    recorded: list[str] = json.loads(FIELDS.read_text())[kind.__name__]
    assert field_names(kind)[: len(recorded)] == recorded
    for field in msgspec.structs.fields(kind)[len(recorded) :]:
        assert not field.required, f"{field.name}: older messages do not have it"


@pytest.mark.parametrize("kind", WIRE, ids=lambda kind: kind.__name__)
def test_a_reader_skips_what_a_newer_writer_adds(kind: type[msgspec.Struct]) -> None:
    assert not kind.__struct_config__.forbid_unknown_fields


def test_every_wire_type_has_a_sample() -> None:
    seen: set[type] = set()

    def walk(value: Any) -> None:
        if isinstance(value, msgspec.Struct):
            seen.add(type(value))
            for field in value.__struct_fields__:
                walk(getattr(value, field))
        elif isinstance(value, list):
            for one in value:
                walk(one)

    for sample in SAMPLES.values():
        walk(sample)
    assert seen >= set(WIRE)


def test_a_sample_sets_every_field_of_its_type() -> None:
    """Otherwise its golden bytes would say nothing about the ones left out."""
    for kind in WIRE:
        samples = [one for sample in SAMPLES.values() for one in found(sample, kind)]
        for field in msgspec.structs.fields(kind):
            if not field.required:
                default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default  # type: ignore[operator]
                assert any(getattr(one, field.name) != default for one in samples), f"{kind.__name__}.{field.name}"


def found(value: Any, kind: type) -> list[Any]:
    if isinstance(value, list):
        return [one for each in value for one in found(each, kind)]
    if not isinstance(value, msgspec.Struct):
        return []
    inside = [one for field in value.__struct_fields__ for one in found(getattr(value, field), kind)]
    return [value, *inside] if isinstance(value, kind) else inside
