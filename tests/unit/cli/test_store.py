"""`triptych store sweep`."""

import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from cli import store
from cli.errors import CommandFailed
from infra.clock import ManualClock, SystemClock
from infra.settings import Settings
from infra.sweeper import Swept


def swept(monkeypatch: pytest.MonkeyPatch, failures: Mapping[str, str], *, dry_run: bool = False) -> tuple[bool, str]:
    async def sweep(*_: object) -> list[Swept]:
        return [Swept("media/", 5, 5_000, 0, 0), Swept("outputs/", 9, 9_000, 3, 3_000, dict(failures))]

    monkeypatch.setattr(store, "_sweep", sweep)
    out = io.StringIO()
    console = Console(file=out, width=120)
    return store.sweep(Settings(), dry_run, ManualClock(), console, console), out.getvalue()


def test_it_shows_what_there_was_and_what_went(monkeypatch: pytest.MonkeyPatch) -> None:
    well, text = swept(monkeypatch, {})
    assert well
    assert cells(text, "outputs/") == ["outputs/", "9", "9.0 kB", "3", "3.0 kB", "0"]


def test_what_could_not_be_deleted_is_named_and_makes_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    well, text = swept(monkeypatch, {"outputs/a/0.png": "AccessDenied: [no]"})
    assert not well
    assert "outputs/a/0.png could not be deleted: AccessDenied: [no]" in text
    assert cells(text, "outputs/")[3:] == ["2", "3.0 kB", "1"]


def test_a_dry_run_says_would(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "would be deleted" in swept(monkeypatch, {}, dry_run=True)[1]


@pytest.mark.services  # as long as a client tries again
def test_a_store_that_is_away_is_named(unused_tcp_port: int) -> None:
    settings = Settings(s3_endpoint=f"http://127.0.0.1:{unused_tcp_port}")
    with pytest.raises(CommandFailed, match=str(unused_tcp_port)):
        store.sweep(settings, True, SystemClock(), Console(file=io.StringIO()), Console(file=io.StringIO()))


def cells(text: str, first: str) -> list[str]:
    [row] = [one for one in text.splitlines() if first in one and "│" in one]
    return [one.strip() for one in row.strip("│").split("│")]
