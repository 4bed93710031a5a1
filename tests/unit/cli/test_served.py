import io

import pytest
from rich.console import Console

from cli import served
from cli.errors import CommandFailed
from infra import tesseract
from infra.manifests import UnknownModel
from infra.settings import Settings


def ids(wanted: str, console: Console | None = None, *, real_media: bool = True) -> list[str]:
    found = served.chosen(wanted, Settings(), console or Console(file=io.StringIO()), real_media=real_media)
    return [one.id for one in found]


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> str:
        raise tesseract.Unusable("tesseract is not installed")

    monkeypatch.setattr(tesseract, "find", find)


@pytest.fixture
def seeing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tesseract, "find", lambda: "/usr/bin/tesseract")


@pytest.mark.usefixtures("seeing")
def test_without_a_wish_all_that_comes_along_is_served() -> None:
    assert ids("") == list(served.BY_DEFAULT)


@pytest.mark.usefixtures("seeing")
def test_a_wish_is_served_in_its_order() -> None:
    assert ids("triptych-omni-tiny, smollm2-135m") == ["triptych-omni-tiny", "smollm2-135m"]
    with pytest.raises(UnknownModel, match="no-such"):
        ids("no-such")


@pytest.mark.usefixtures("blind")
def test_without_tesseract_the_default_leaves_out_who_needs_it_and_says_so() -> None:
    said = io.StringIO()
    assert ids("", Console(file=said, width=300)) == ["smollm2-135m", "triptych-omni-tiny"]
    assert "without smollm2-cascade: tesseract is not installed" in said.getvalue()
    assert "apt-get install" in said.getvalue()


@pytest.mark.usefixtures("blind")
def test_without_tesseract_a_wish_that_needs_it_is_refused_with_what_to_do() -> None:
    with pytest.raises(CommandFailed, match=r"smollm2-cascade: tesseract is not installed; install it: apt-get"):
        ids("smollm2-cascade")
    assert ids("smollm2-135m") == ["smollm2-135m"]


@pytest.mark.usefixtures("blind")
def test_made_up_media_need_no_tesseract() -> None:
    assert ids("", real_media=False) == list(served.BY_DEFAULT)
