import io
from pathlib import Path

import pytest
from rich.console import Console

from cli.local.broker import Decision
from cli.local.process import Part
from cli.local.stack import Addresses, Plan
from cli.local.supervisor import Member, State
from cli.screen import LiveScreen, PlainScreen, View, last_words, note, screen_for
from cli.traffic import Rates
from infra.clock import ManualClock

URL = "http://127.0.0.1:8000"


def plan(tmp_path: Path, kind: str = "embedded") -> Plan:
    return Plan(
        addresses=Addresses(url=URL, bootstrap="b", redis="r", s3="s"),
        models=["tiny"],
        decision=Decision("kafka" if kind == "kafka" else "embedded", "asked for"),
        logs=tmp_path,
        groups=[],
        stop_order=[],
    )


def member(tmp_path: Path, state: State, log: str = "") -> Member:
    path = tmp_path / "llm-0.log"
    path.write_text(log)
    part = Part(name="llm-0", argv=[], log=path, port=4711, ready=lambda: False, start_limit_s=1.0)
    made = Member(part, lambda _: pytest.fail("nothing is started here"), ManualClock())
    made.state = state
    return made


def drawn(tmp_path: Path, *views: View, kind: str = "embedded") -> str:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system=None, width=120)
    clock = ManualClock()
    with LiveScreen(plan(tmp_path, kind), ["tiny"], console, clock) as screen:
        for view in views:
            screen.show(view)
            clock.advance(10.0)
    return shown.getvalue()


def test_a_part_on_its_way_shows_the_last_line_of_its_log(tmp_path: Path) -> None:
    assert note(member(tmp_path, "starting", "loading\n\x1b[31mwarming up\x1b[0m\n")) == "warming up"


def test_our_own_last_word_is_found_under_the_noise_of_libraries() -> None:
    head = "2026-01-01 00:00:00,000 INFO    "
    log = f"{head}workers.llm_process: importing vLLM\n{head}workers.llm_process: warming up\n{head}vllm.x: hm\nNOTE: y"
    assert last_words(log) == "warming up"
    assert last_words("one\ntwo") == "two"
    assert last_words("") == ""


def test_a_part_that_died_shows_how(tmp_path: Path) -> None:
    died = member(tmp_path, "restarting")
    died.last_exit = -9
    assert note(died) == "ended with code -9"


def test_the_table_names_part_state_port_and_the_kind_of_broker(tmp_path: Path) -> None:
    shown = drawn(tmp_path, View([member(tmp_path, "starting", "loading")], Rates(), serves=False))
    assert all(word in shown for word in ("llm-0", "starting", "4711", "loading", "memory-only"))
    assert "curl" not in shown


def test_a_serving_stack_shows_rates_and_a_request_to_copy(tmp_path: Path) -> None:
    view = View([member(tmp_path, "ready")], Rates(7, 1.5, 42.0), serves=True)
    shown = drawn(tmp_path, view, kind="kafka")
    assert all(word in shown for word in ("7 requests", "1.5/s", "42.0 tokens/s", f"curl -N {URL}", "Apache Kafka"))


def test_an_unchanged_view_is_drawn_twice_a_second_at_most(tmp_path: Path) -> None:
    shown = io.StringIO()
    clock = ManualClock()
    screen = LiveScreen(plan(tmp_path), ["tiny"], Console(file=shown, force_terminal=True), clock)
    part = member(tmp_path, "starting")
    with screen:
        screen.show(View([part], Rates(), serves=False))
        after_first = len(shown.getvalue())
        clock.advance(0.1)
        screen.show(View([part], Rates(), serves=False))
        assert len(shown.getvalue()) == after_first
        part.state = "ready"
        screen.show(View([part], Rates(), serves=False))
        assert len(shown.getvalue()) > after_first


def test_without_a_terminal_each_change_is_one_line(tmp_path: Path) -> None:
    shown = io.StringIO()
    screen = screen_for(plan(tmp_path), ["tiny"], Console(file=shown), ManualClock())
    assert isinstance(screen, PlainScreen)
    part = member(tmp_path, "starting")
    with screen:
        for _ in range(3):
            screen.show(View([part], Rates(), serves=False))
        part.state = "ready"
        screen.show(View([part], Rates(), serves=True))
    lines = shown.getvalue().splitlines()
    assert lines[1:4] == ["llm-0: starting, port 4711", "llm-0: ready, port 4711", f"serving tiny at {URL}"]
