import os
import subprocess
import sys
from pathlib import Path

import msgspec

from cli.local import state
from cli.local.state import StackState


def described(pids: dict[str, int]) -> StackState:
    return StackState(
        url="http://127.0.0.1:8000",
        bootstrap="127.0.0.1:9092",
        redis="redis://127.0.0.1:6379/0",
        s3="http://127.0.0.1:9000",
        broker="embedded",
        started_at=1.0,
        supervisor=os.getpid(),
        pids=pids,
        births=state.births_of(pids),
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = described({"gateway": os.getppid()})
    state.write(tmp_path, written)
    assert state.read(tmp_path) == written


def test_there_is_no_state_before_a_start_after_a_stop_and_in_a_damaged_file(tmp_path: Path) -> None:
    assert state.read(tmp_path) is None
    state.path(tmp_path).write_text('{"url": ')
    assert state.read(tmp_path) is None
    state.remove(tmp_path)
    state.remove(tmp_path)
    assert not state.path(tmp_path).exists()


def test_a_process_that_ended_is_no_longer_ours() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        before = described({"worker": child.pid})
        assert state.ours_alive(before) == {"worker": child.pid, state.SUPERVISOR: os.getpid()}
    assert state.ours_alive(before) == {state.SUPERVISOR: os.getpid()}


def test_a_reused_process_id_is_not_ours() -> None:
    """`down` must never signal a stranger that got the id of a part that died."""
    before = described({"worker": os.getppid()})
    births = {name: born - 60.0 for name, born in before.births.items()}
    assert state.ours_alive(msgspec.structs.replace(before, births=births)) == {}
