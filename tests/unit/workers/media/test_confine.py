"""What a decoding process can still do once a file has taken it over: nothing but answer wrongly."""

import asyncio
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest

from infra.clock import SystemClock
from schemas.manifest import MediaLimits
from tests.unit.workers.media import probe, probing
from tests.waiting import until
from workers.encoder import MediaFault
from workers.media import confine, wire
from workers.media.process import Died, Process, started

ROOT = Path(__file__).parents[4]
SECRET = "planted in the worker"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")
# What matters most, and must not hang on seccomp alone.
WORST = {
    "read a file", "write a file", "write to a file", "remove a file", "connect over TCP", "send over UDP",
    "read the worker's environment", "read the worker's memory", "read the worker's memory by call",
    "trace the worker", "signal the worker", "take all memory",
}  # fmt: skip
# As a container without privileges: user 10001, no capabilities to be had.
UNPRIVILEGED = ["setpriv", "--reuid", "10001", "--regid", "10001", "--clear-groups", "--no-new-privs",
                "--bounding-set", "-all"]  # fmt: skip
IN_A_CONTAINER = ["network", "user"]  # what Docker's own profile refuses that user


def run(prefix: list[str], python: str, argument: str) -> "subprocess.CompletedProcess[str]":
    command = [*prefix, python, "-P", "-m", probing.__name__, argument]
    environment = {"PYTHONPATH": str(ROOT), "TRIPTYCH_S3_SECRET_KEY": SECRET}
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False)


def told_by(prefix: list[str], python: str, refused: list[str]) -> dict[str, Any]:
    done = run(prefix, python, json.dumps(refused))
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def open_python() -> Iterator[str]:
    """An interpreter with our packages that any user can run, if there is one."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        packages = Path(folder, "lib", version, "site-packages")
        packages.parent.mkdir(parents=True)
        packages.symlink_to(site.getsitepackages()[0])
        Path(folder, "bin").mkdir()
        python = Path(folder, "bin", "python")
        for home in (Path(sys.executable).resolve().parent, Path("/usr/bin"), Path("/usr/local/bin")):
            Path(folder, "pyvenv.cfg").write_text(f"home = {home}\n")
            python.unlink(missing_ok=True)
            python.symlink_to(home / version)
            # Twice: setpriv itself may still pass closed folders, what it has started may not.
            code = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import workers.media']))"
            command = [*UNPRIVILEGED, str(python), "-P", "-c", code]
            environment = {"PYTHONPATH": str(ROOT)}
            if subprocess.run(command, env=environment, cwd="/", capture_output=True, check=False).returncode == 0:
                yield str(python)
                return
        pytest.skip("no other user can run this Python, or read this folder")


@pytest.fixture(scope="module", params=["as we are", "unprivileged", "in a container"])
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "as we are":
        return told_by([], sys.executable, [])
    refused = IN_A_CONTAINER if request.param == "in a container" else []
    return told_by(UNPRIVILEGED, request.getfixturevalue("open_python"), refused)


def test_nothing_that_it_tries_succeeds(told: dict[str, Any]) -> None:
    assert told["found"] == dict.fromkeys(told["found"], probe.REFUSED)
    assert set(told["found"]) > WORST
    assert told["files"] == {"victim": "untouched"}
    assert told["heard"] == []
    assert told["exit"] == 0


def test_it_has_two_pipes_and_nothing_of_the_worker_s(told: dict[str, Any]) -> None:
    assert told["open"] == told["pipes"]
    assert set(told["environment"]) <= {"PYTHONPATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LC_CTYPE"}
    assert SECRET not in json.dumps(told)


def test_it_can_still_decode_and_start_threads(told: dict[str, Any]) -> None:
    assert told["decodes"]
    assert told["thread"] == "done"


def test_the_kernel_says_the_same_of_it_as_it_does_itself(told: dict[str, Any]) -> None:
    in_force, status = told["confinement"]["in_force"], told["status"]
    assert {"limits", "capabilities", "privileges", "hidden", "parent", "descriptors", "seccomp"} <= set(in_force)
    assert status["NoNewPrivs"] == ["1"] and status["Seccomp"] == ["2"]
    assert status["CapPrm"] == status["CapEff"] == ["0000000000000000"]
    assert set(in_force).isdisjoint(told["confinement"]["missing"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_of_root_it_becomes_a_user_that_nobody_else_is_and_leaves_the_network() -> None:
    told = told_by([], sys.executable, [])
    assert {"user", "network"} <= set(told["confinement"]["in_force"])
    assert told["status"]["Uid"] == told["status"]["Gid"] == [str(0x7000_0000 + told["pid"])] * 4
    assert told["status"]["Groups"] == []
    assert "" != told["network"][0] != told["network"][1]


def test_unprivileged_it_is_hidden_from_others_of_its_user_and_says_what_is_not_in_force(open_python: str) -> None:
    told = told_by(UNPRIVILEGED, open_python, IN_A_CONTAINER)
    assert told["status"]["Uid"] == ["10001"] * 4
    assert told["peer"] == {"environ": probe.REFUSED, "mem": probe.REFUSED}
    assert told["confinement"]["missing"] == dict.fromkeys(IN_A_CONTAINER, "as the test wants it")


@pytest.mark.skipif(os.geteuid() != 0, reason="others have two layers less")
@pytest.mark.parametrize("also", ["user", "network", "landlock"])
def test_the_worst_is_closed_twice(also: str) -> None:
    told = told_by([], sys.executable, ["seccomp", also])
    possible = {name for name in WORST if told["found"][name] != probe.REFUSED}
    assert possible == ({"remove a file"} if also == "landlock" else set())  # from a folder that anybody may write to
    assert told["files"].get("victim", "untouched") == "untouched" and told["heard"] == []


def test_seccomp_alone_closes_everything_but_the_memory() -> None:
    told = told_by([], sys.executable, [layer for layer in get_args(confine.Layer) if layer != "seccomp"])
    assert {name for name, how in told["found"].items() if how != probe.REFUSED} == {"take all memory"}
    assert told["files"] == {"victim": "untouched"} and told["heard"] == []


async def test_it_goes_with_its_worker_whatever_it_does() -> None:
    command = [sys.executable, "-m", probing.__name__, "hang"]
    worker = await asyncio.create_subprocess_exec(
        *command, env={"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    process = psutil.Process(int(await worker.stdout.readline()))
    worker.kill()
    await worker.wait()
    await until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


ASK = wire.Ask("image", "vision", MediaLimits(), 0.2, 1)


def a_process_that(then: str) -> "tuple[Process, subprocess.Popen[bytes]]":
    popen = started(probe.__name__, probing.MEMORY_BYTES, json.dumps({"then": then}))
    return Process(popen, SystemClock()), popen


def test_one_that_ignores_its_alarm_is_killed() -> None:
    process, popen = a_process_that("hang")
    with pytest.raises(MediaFault, match="too long to decode"):
        process.decode(ASK, b"x")
    assert popen.returncode == -signal.SIGKILL
    assert not process.is_open


def test_one_that_answers_nonsense_is_ended_and_not_believed() -> None:
    process, popen = a_process_that("nonsense")
    with pytest.raises(Died, match="too long"):
        process.decode(ASK, b"x")
    assert popen.returncode is not None


def test_one_that_raises_says_what_and_cannot_write_into_the_log() -> None:
    process, popen = a_process_that("raise")
    with pytest.raises(Died, match=r"RuntimeError: probe .x1b.31m was told to") as caught:
        process.decode(ASK, b"x")
    assert str(caught.value).isprintable()
    assert popen.returncode == 1
