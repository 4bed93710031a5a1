"""Settings: read once, and a wrong one refuses to start, naming itself."""

import pytest

from infra import settings
from infra.settings import Secret, WrongSetting


def test_nothing_set_is_a_local_cluster() -> None:
    found = settings.load({})
    assert (found.port, found.model_ids) == (8000, ["smollm2-135m"])


def test_values_are_read_by_their_type() -> None:
    found = settings.load({"TRIPTYCH_PORT": "9001", "TRIPTYCH_MODELS": "a, b,", "TRIPTYCH_S3_SECRET_KEY": "k"})
    assert (found.port, found.model_ids, found.s3_secret_key.value) == (9001, ["a", "b"], "k")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRIPTYCH_PORT", "eighty"),
        ("TRIPTYCH_PORT", "70000"),
        ("TRIPTYCH_DRAIN_S", "0"),
        ("TRIPTYCH_LOG_LEVEL", "loud"),
        ("TRIPTYCH_PROT", "8000"),
    ],
)
def test_a_wrong_one_is_named(name: str, value: str) -> None:
    with pytest.raises(WrongSetting, match=name):
        settings.load({name: value})


def test_the_largest_body_must_find_room() -> None:
    mib = 1 << 20
    settings.load({"TRIPTYCH_MAX_BODY_BYTES": str(96 * mib), "TRIPTYCH_MAX_HELD_BODY_BYTES": str(192 * mib)})
    with pytest.raises(WrongSetting, match=r"TRIPTYCH_MAX_HELD_BODY_BYTES must be at least \d+.*MAX_BODY_BYTES"):
        settings.load({"TRIPTYCH_MAX_BODY_BYTES": str(96 * mib), "TRIPTYCH_MAX_HELD_BODY_BYTES": str(191 * mib)})


def test_variables_of_others_are_left_alone() -> None:
    settings.load({"PATH": "/bin", "TRIPTYCH_KAFKA_LIBS": "/jars"})


def test_a_secret_does_not_print_itself() -> None:
    found = settings.load({"TRIPTYCH_S3_SECRET_KEY": "hunter2"})
    assert "hunter2" not in repr(found) + str(found.s3_secret_key)
    assert repr(Secret("")) == "Secret('')"


def test_only_known_other_variables_can_be_asked_for() -> None:
    assert settings.other("URL", environ={"TRIPTYCH_URL": "http://x"}) == "http://x"
    with pytest.raises(KeyError):
        settings.other("NONSENSE", environ={})
