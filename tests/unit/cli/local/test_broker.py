from pathlib import Path

import pytest

from cli.local import broker, kafka_jars
from cli.local.kafka_jars import NotToBeHad
from cli.local.process import PartFailed

JAVA = Path("/usr/bin/java")


def _refuse(reason: str) -> str:
    raise NotToBeHad(reason)


@pytest.fixture
def with_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "java", lambda: JAVA)
    monkeypatch.setattr(kafka_jars, "class_path", lambda: "/libs/*")


@pytest.fixture
def without_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "java", lambda: JAVA)
    monkeypatch.setattr(kafka_jars, "class_path", lambda: _refuse("no route to Maven"))


@pytest.mark.usefixtures("with_kafka")
def test_auto_takes_apache_kafka_where_its_parts_are() -> None:
    decision = broker.broker_kind("auto")
    assert (decision.kind, decision.kafka) == ("kafka", broker.KafkaParts(JAVA, "/libs/*"))


@pytest.mark.usefixtures("without_jars")
def test_auto_falls_back_to_the_embedded_broker_and_says_why() -> None:
    decision = broker.broker_kind("auto")
    assert (decision.kind, decision.kafka) == ("embedded", None)
    assert "no route to Maven" in decision.why


@pytest.mark.usefixtures("without_jars")
def test_kafka_by_name_fails_where_it_cannot_run() -> None:
    with pytest.raises(PartFailed, match="no route to Maven"):
        broker.broker_kind("kafka")


@pytest.mark.usefixtures("with_kafka")
def test_embedded_by_name_does_not_look_for_kafka() -> None:
    assert broker.broker_kind("embedded") == broker.Decision("embedded", "asked for")


def test_a_folder_without_kafka_in_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_KAFKA_LIBS", str(tmp_path))
    with pytest.raises(NotToBeHad, match=str(tmp_path)):
        kafka_jars.class_path()


def test_a_folder_of_jars_becomes_a_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka_2.13-4.4.0.jar").touch()
    monkeypatch.setenv("TRIPTYCH_KAFKA_LIBS", str(tmp_path))
    assert kafka_jars.class_path() == f"{tmp_path}/*"


def test_a_broker_that_runs_already_is_taken_by_its_address() -> None:
    assert broker.broker_kind("kafka.example:9092").address == "kafka.example:9092"


@pytest.mark.parametrize("wish", ["kafak", "host:", ":9092", "host:port"])
def test_a_wish_that_is_none_is_refused_with_what_there_is(wish: str) -> None:
    with pytest.raises(PartFailed, match="auto, kafka, embedded or host:port"):
        broker.broker_kind(wish)


def test_a_cluster_id_never_looks_like_an_option() -> None:
    drawn = [broker.cluster_id() for _ in range(2_000)]
    assert not [one for one in drawn if one.startswith("-")]
    assert len(set(drawn)) == 2_000
    assert {len(one) for one in drawn} == {22}
