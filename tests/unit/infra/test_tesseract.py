from pathlib import Path

import pytest

from infra import tesseract
from infra.tesseract import Failed, Unusable


def program(folder: Path, body: str) -> str:
    path = folder / "tesseract"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_where_it_is_not_installed_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unusable, match="tesseract is not installed"):
        tesseract.find()


def test_a_missing_language_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = program(tmp_path, "echo eng; echo osd")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(Unusable, match="no language kor"):
        tesseract.find()
    assert tesseract.find(["eng"]) == found


def test_text_and_words_come_back_and_it_runs_on_one_thread(tmp_path: Path) -> None:
    read = program(tmp_path, 'cat > "$2.txt"; echo "$OMP_THREAD_LIMIT $1 $3 $4 $5 $6" > "$2.tsv"')
    found = tesseract.run(read, b"picture", "6", timeout_s=10)
    assert found == ("picture", "1 stdin -l kor+eng --psm 6\n")


def test_a_bad_end_says_what_tesseract_said(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="ended with 3: no such picture"):
        tesseract.run(program(tmp_path, "echo no such picture >&2; exit 3"), b"", "6", timeout_s=10)


def test_one_that_never_ends_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="longer than"):
        tesseract.run(program(tmp_path, "exec sleep 60"), b"", "6", timeout_s=0.2)
