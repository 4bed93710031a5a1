"""The README and the pages under docs/ name only what exists."""

import re
from pathlib import Path

import pytest

from gateway import siblings
from infra import settings
from infra.metrics import Metrics
from tests import deploy

README = deploy.ROOT / "README.md"
PAGES = [README, *sorted((deploy.ROOT / "docs").glob("*.md"))]
HOUSES = "schemas|topics|infra|gateway|workers|cli|tests|docs"


def words(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", page))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = {word for word in words(_text(page)) if re.fullmatch(rf"({HOUSES})/[\w./-]*", word)}
    assert named
    assert not [word for word in named if not (deploy.ROOT / word).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_settings_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"\bTRIPTYCH_[A-Z0-9_]*[A-Z0-9]\b", _text(page)))
    assert named <= _settings() | settings.OTHERS


def test_every_setting_is_in_the_table_of_the_readme() -> None:
    assert _settings() <= set(re.findall(r"`(TRIPTYCH_[A-Z0-9_]+)`", _text(README)))


def test_variables_of_the_compose_file_are_all_explained() -> None:
    assert deploy.variables() <= set(re.findall(r"[A-Z][A-Z0-9_]+", _text(deploy.ROOT / "docs/operations.md")))


def test_metrics_that_operations_names_exist() -> None:
    named = set(re.findall(r"\btriptych_[a-z_]+", _text(deploy.ROOT / "docs/operations.md")))
    families = set(re.findall(r"^# TYPE (\S+) ", Metrics().render().decode() + siblings.UP, re.MULTILINE))
    assert named
    assert named <= families


def _settings() -> set[str]:
    return {settings.variable(name) for name in settings.Settings.__struct_fields__}


def _text(page: Path) -> str:
    return page.read_text("utf-8")
