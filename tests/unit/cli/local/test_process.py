import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cli.local import state
from cli.local.process import Part, PartFailed, log_tail, running
from tests.waiting import until

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def part(tmp_path: Path, program: str, *, start_limit_s: float = 10.0, stop_limit_s: float = 5.0) -> Part:
    log = tmp_path / "logs" / "part.log"
    return Part(
        name="part",
        argv=[sys.executable, "-c", program],
        log=log,
        port=1,
        ready=lambda: "up" in log_tail(log),
        start_limit_s=start_limit_s,
        stop_limit_s=stop_limit_s,
    )


def test_a_part_serves_inside_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    with running(part(tmp_path, SLEEPER)) as child:
        assert child.exit_code() is None
    assert not psutil.pid_exists(child.pid)


def test_a_part_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with running(part(tmp_path, STUBBORN, stop_limit_s=0.2)) as child:
        pass
    assert child.exit_code() == -signal.SIGKILL


def test_what_a_part_started_itself_ends_with_it(tmp_path: Path) -> None:
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]).wait()"
    with running(part(tmp_path, program)) as child:
        grandchildren = psutil.Process(child.pid).children()
        assert len(grandchildren) == 1
    _, alive = psutil.wait_procs(grandchildren, timeout=5)
    assert alive == []


def test_a_part_that_ends_before_it_serves_fails_with_the_end_of_its_log(tmp_path: Path) -> None:
    failing = part(tmp_path, "import sys; print('no such broker'); sys.exit(7)")
    with pytest.raises(PartFailed, match=r"ended with code 7[^$]*no such broker"), running(failing):
        pass


def test_a_part_that_never_serves_fails_at_its_limit(tmp_path: Path) -> None:
    silent = part(tmp_path, "import time; time.sleep(60)", start_limit_s=0.3)
    with pytest.raises(PartFailed, match=r"did not serve within 0 s"), running(silent):
        pass


def test_a_program_that_does_not_exist_fails_by_name(tmp_path: Path) -> None:
    missing = Part(
        name="part", argv=["/no/such/program"], log=tmp_path / "log", port=1, ready=lambda: True, start_limit_s=1
    )
    with pytest.raises(PartFailed, match="part cannot be started"), running(missing):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_part_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    owner = f"""
import sys, time
from pathlib import Path
from cli.local.process import Part, running
part = Part(name="p", argv=[sys.executable, "-c", {SLEEPER!r}], log=Path({str(tmp_path / "log")!r}), port=1,
            ready=lambda: True, start_limit_s=5)
with running(part) as child:
    print(child.pid, flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        assert psutil.pid_exists(orphan)
        os.kill(parent.pid, signal.SIGKILL)
    asyncio.run(until(lambda: state.birth(orphan) is None))


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_tail(log) == ""
    log.write_text("\n".join(map(str, range(100_000))))
    assert log_tail(log, 2) == "99998\n99999"
