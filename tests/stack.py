"""A whole running Triptych for tests and benchmarks, started the way a user starts it: `triptych up`."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import psutil

from infra import redis_client
from infra.leases import RedisLeases
from infra.settings import variable

ROOT = Path(__file__).parent.parent
START_S, STOP_S = 240.0, 45.0
GATEWAY_START_S = 60.0
GATEWAY = "gateway"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: Callable[[], str]) -> bool:
    """With a 200; False also when there is no such URL yet, or no such process any more."""
    try:
        with urllib.request.urlopen(url(), timeout=5) as answer:
            return int(answer.status) == 200
    except (OSError, ValueError, KeyError, psutil.NoSuchProcess):
        return False


class Stack:
    """`stack.json` of a running `triptych up`, and its parts as processes."""

    def __init__(self, process: subprocess.Popen[bytes], home: Path, output: Path) -> None:
        self.process = process
        self.home = home
        self.output = output

    def describe(self) -> dict[str, object]:
        return dict(json.loads((self.home / "stack.json").read_text()))

    @property
    def url(self) -> str:
        return str(self.describe()["url"])

    def pid(self, part: str) -> int:
        """Raises KeyError: it does not run now."""
        pids = self.describe()["pids"]
        assert isinstance(pids, dict)
        return int(pids[part])

    def kill(self, part: str) -> int:
        """kill -9 one part; returns the pid that died."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def ready(self) -> bool:
        return _answers(lambda: f"{self.url}/readyz")

    def environment(self, part: str) -> dict[str, str]:
        """A part's own: its settings among others."""
        return dict(psutil.Process(self.pid(part)).environ())

    def metric(self, name: str, part: str = GATEWAY, **labels: str) -> float:
        """The sum of one metric of a part in this life of its, over the samples that have these labels."""
        with urllib.request.urlopen(f"{self._pages_of(part)}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == name and all(one in line for one in wanted)
        )

    def alive_again(self, part: str, dead_pid: int) -> bool:
        """The supervisor has started it anew, and it is ready."""
        return _answers(lambda: f"{self._pages_of(part)}/readyz") and self.pid(part) != dead_pid

    def _pages_of(self, part: str) -> str:
        return self.url if part == GATEWAY else f"http://127.0.0.1:{self.environment(part)[variable('metrics_port')]}"

    async def nothing_runs(self, model: str = "smollm2-135m", partitions: int = 12) -> bool:
        """No worker's last beat tells of a running or waiting job."""
        async with aclosing(redis_client.connect(str(self.describe()["redis"]), max_connections=1)) as client:
            view = await RedisLeases(client, model).view(partitions)
        return bool(view.beats) and all(beat.running == beat.waiting == 0 for beat in view.beats.values())

    def wait_ready(self, within_s: float = START_S) -> None:
        until = time.monotonic() + within_s
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the stack did not come up:\n{self.output.read_text()[-4000:]}")
            time.sleep(0.1)

    async def ready_again(self, within_s: float = START_S) -> None:
        await asyncio.to_thread(self.wait_ready, within_s)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)


@contextlib.contextmanager
def running(home: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Stack]:
    """`triptych up` with these arguments on a free port; yields when it is ready, stops it afterwards."""
    home.mkdir(parents=True, exist_ok=True)
    output = home / "up.log"
    command = [sys.executable, "-m", "cli", "up", "--home", str(home), "--port", str(free_port()), *arguments]
    with output.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
        )
    stack = Stack(process, home, output)
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.stop()


@contextlib.contextmanager
def another_gateway(stack: Stack, **settings: str) -> Iterator[str]:
    """One more gateway of the same cluster, as a second replica would be, with these settings changed; its URL."""
    own = {"port": str(free_port()), "gateway_id": f"gateway-{free_port()}", **settings}
    environment = {**os.environ, **stack.environment(GATEWAY), **{variable(key): value for key, value in own.items()}}
    url, output = f"http://127.0.0.1:{own['port']}", stack.home / f"{own['gateway_id']}.log"
    with output.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "gateway"], cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + GATEWAY_START_S
        while not _answers(lambda: f"{url}/readyz"):
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the gateway did not come up:\n{output.read_text()[-4000:]}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(STOP_S)
