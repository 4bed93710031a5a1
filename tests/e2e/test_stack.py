"""`triptych up`, as a user runs it: a process of its own, the stub engine, real services."""

import html
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from cli.gateway_client import GatewayClient, GatewayRefused
from cli.local import ports, state
from cli.local.process import log_tail
from gateway.asyncapi_page import PROMPT
from infra import settings
from tests import services
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

MODEL = "smollm2-135m"
# The first start may have to fetch the model.
START_LIMIT_S = 180.0
STOP_LIMIT_S = 40.0
BROKER = services.broker_wish()[1]
OWN_BROKER = ":" not in BROKER  # not one that TRIPTYCH_TEST_KAFKA lends us
# What the tests of a developer say about services is not for the stack under test.
OWN = ("TRIPTYCH_TEST_KAFKA", "TRIPTYCH_TEST_REDIS", "TRIPTYCH_TEST_S3", "TRIPTYCH_HOME", "TRIPTYCH_URL")


class Stack:
    """A running `triptych up` and what it says about itself."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = ports.free()
        self.said = home / "up.txt"
        home.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "cli", "up", "--home", str(home), "--port", str(self.port)]
        environment = {name: value for name, value in os.environ.items() if name not in OWN}
        with self.said.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--broker", BROKER, "--engine", "stub", "--media-engine", "sim"],
                stdout=output,
                stderr=output,
                env=environment,
            )
        self.client = GatewayClient(f"http://{ports.LOOPBACK}:{self.port}", timeout_s=30.0)

    @property
    def state(self) -> state.StackState:
        described = state.read(self.home)
        assert described is not None, log_tail(self.said)
        return described

    async def serves(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, log_tail(self.said)
            return "serving" in self.said.read_text()

        await until(ready, within_s=START_LIMIT_S, every_s=0.2)

    async def says(self, words: str, after: str) -> None:
        await until(lambda: words in self.said.read_text().partition(after)[2], within_s=60)

    def answer(self) -> str:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True}
        events = self.client.events("/v1/chat/completions", msgspec.json.encode(body))
        chunks = [msgspec.json.decode(event) for event in events]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])

    def answers(self) -> bool:
        """Whether it answers at all: right after a broker came back a refusal is honest."""
        try:
            return bool(self.answer())
        except GatewayRefused:
            return False

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli", *arguments, "--home", str(self.home)]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    def send_a_job(self, script: Path) -> subprocess.CompletedProcess[str]:
        """Run what the page of topics shows, from this file."""
        page = httpx.get(f"{self.client.url}/asyncapi").text
        (shown,) = re.findall('<pre id="script"[^>]*>(.*?)</pre>', page, re.DOTALL)
        script.write_text(html.unescape(shown))
        command = [sys.executable, "-W", "error", script]
        environment = os.environ | {settings.variable("redis"): self.state.redis}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(STOP_LIMIT_S)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("stack"))
    yield stack
    stack.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path / "home")
    yield stack
    stack.close()


async def test_a_newcomer_gets_an_answer(running: Stack) -> None:
    await running.serves()
    assert running.answer()
    assert running.state.url == running.client.url
    media = {f"{topic}-0" for topic in ("encode-vision", "encode-audio", "decode-image", "decode-audio")}
    parts = {"valkey", "s3", "gateway", "llm-0", "llm-1", "llm-2"} | media
    assert set(running.state.pids) == (parts | {"broker"} if OWN_BROKER else parts)
    assert f"curl -N {running.client.url}/v1/chat/completions" in running.said.read_text()


async def test_the_script_on_the_page_of_topics_gets_an_answer_as_it_stands(running: Stack, tmp_path: Path) -> None:
    await running.serves()
    ran = running.send_a_job(tmp_path / "send_a_job.py")
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(rf"{PROMPT}( tok\d+){{24}} \[f\]\n", ran.stdout)


async def test_status_names_the_workers_and_their_partitions(running: Stack) -> None:
    await running.serves()
    shown = running.run("status")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "12 of 12 partitions owned" in shown.stdout
    assert "llm-0:" in shown.stdout


async def test_a_second_stack_in_the_same_folder_is_refused(running: Stack) -> None:
    await running.serves()
    refused = running.run("up", "--port", str(ports.free()))
    assert refused.returncode == 1
    assert "triptych down" in refused.stderr


async def test_a_killed_worker_is_started_again_and_the_stack_goes_on_answering(running: Stack) -> None:
    await running.serves()
    killed = running.state.pids["llm-0"]
    os.kill(killed, signal.SIGKILL)
    await running.says("llm-0: ready", after="llm-0: restarting")
    assert ", restarts 1" in running.said.read_text()
    assert running.state.pids["llm-0"] != killed
    assert running.answer()


@pytest.mark.skipif(not OWN_BROKER, reason="the broker is not ours to kill")
async def test_a_broker_that_forgot_its_topics_gets_them_again(running: Stack) -> None:
    await running.serves()
    os.kill(running.state.pids["broker"], signal.SIGKILL)
    await running.says("broker: ready", after="broker: restarting")
    await until(running.answers, within_s=30, every_s=0.5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_everything_and_leaves_no_process(own: Stack, number: signal.Signals) -> None:
    await own.serves()
    started = own.processes()
    assert len(started) >= 10 + OWN_BROKER
    own.process.send_signal(number)
    assert own.process.wait(STOP_LIMIT_S) == 0
    assert [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
    assert not state.path(own.home).exists()


async def test_down_stops_a_stack_from_another_terminal(own: Stack) -> None:
    await own.serves()
    stopped = own.run("down")
    assert stopped.returncode == 0, stopped.stderr
    assert own.process.wait(5) == 0
    assert "gateway" in stopped.stdout


async def test_a_killed_supervisor_takes_its_parts_with_it(own: Stack) -> None:
    await own.serves()
    started = own.processes()
    own.process.kill()
    own.process.wait(5)
    await until(lambda: not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE], 30)
