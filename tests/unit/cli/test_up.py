import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from cli import up
from cli.errors import CommandFailed
from cli.local import ports, state
from cli.local.broker import Decision
from cli.local.interrupts import Interrupts
from cli.local.process import Part, log_tail
from cli.local.stack import Addresses, Plan, UpOptions
from cli.screen import PlainScreen, View
from infra.clock import SystemClock
from tests.unit.cli.local.test_state import described

GATEWAY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'triptych_requests_total{model="m"} 3\\n' if self.path == "/metrics" else b"ok"
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("up", flush=True)
server.serve_forever()
"""


def options(home: Path, port: int) -> UpOptions:
    return UpOptions(broker="embedded", port=port, workers=1, models="m", engine="stub", home=home)


def plan(home: Path, port: int) -> Plan:
    """A stack of one part: something that answers like a gateway."""
    log = home / "logs" / "gateway.log"
    part = Part(
        name="gateway",
        argv=[sys.executable, "-c", GATEWAY, str(port)],
        log=log,
        port=port,
        ready=lambda: "up" in log_tail(log),
        start_limit_s=20.0,
    )
    return Plan(
        addresses=Addresses(url=f"http://{ports.LOOPBACK}:{port}", bootstrap="b", redis="r", s3="s"),
        decision=Decision("embedded", "asked for"),
        models=["m"],
        logs=log.parent,
        groups=[[part]],
        stop_order=[["gateway"]],
    )


class Watched(PlainScreen):
    """Looks at every view, and interrupts once the condition holds."""

    def __init__(self, plan: Plan, console: Console, interrupts: Interrupts, enough: Callable[[View], bool]) -> None:
        super().__init__(plan, ["m"], console)
        self._interrupts = interrupts
        self._enough = enough

    def show(self, view: View) -> None:
        super().show(view)
        if self._enough(view):
            self._interrupts.count = 1


def test_a_stack_serves_describes_itself_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = ports.free()
    layout = plan(tmp_path, port)
    seen: list[state.StackState] = []

    def serves(view: View) -> bool:
        described_now = state.read(tmp_path)
        if view.serves and described_now is not None:
            seen.append(described_now)
        return view.serves

    interrupts = Interrupts()
    screen = Watched(layout, Console(width=100), interrupts, serves)
    up.Up(options(tmp_path, port), layout, SystemClock(), screen, interrupts).run()

    assert set(seen[0].pids) == {"gateway"}
    assert seen[0].url == layout.addresses.url
    assert state.birth(seen[0].pids["gateway"]) is None
    assert not state.path(tmp_path).exists()
    said = capsys.readouterr().out
    assert said.index("gateway: starting") < said.index("gateway: ready") < said.index(f"serving m at {seen[0].url}")
    assert "curl -N" in said
    assert said.rstrip().endswith("gateway: stopped, port " + str(port))


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(CommandFailed, match=f"port {port} .* is taken; choose another"):
            up.check(options(tmp_path, port), ports.LOOPBACK)


def test_a_second_stack_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    state.write(tmp_path, described({}))
    with pytest.raises(CommandFailed, match="triptych down"):
        up.check(options(tmp_path, ports.free()), ports.LOOPBACK)


def test_the_description_of_a_stack_that_is_gone_is_no_obstacle(tmp_path: Path) -> None:
    gone = described({})
    state.write(tmp_path, msgspec.structs.replace(gone, births={state.SUPERVISOR: 1.0}))
    up.check(options(tmp_path, ports.free()), ports.LOOPBACK)


def test_the_logs_of_the_run_before_are_kept(tmp_path: Path) -> None:
    (tmp_path / "gateway.log").write_text("old")
    up.keep_last_logs(tmp_path)
    assert (tmp_path / "gateway.log.1").read_text() == "old"
    assert not (tmp_path / "gateway.log").exists()
