"""Services of docker-compose.yml as plain processes: addresses of this machine in place of those of its network."""

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import deploy, image
from tests.image import Image
from tests.waiting import until

START_S = 90.0


class Containers:
    """`addresses`: settings of Triptych that differ from the compose file's here."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self._folder = folder
        self._addresses = addresses
        self._images: dict[str, Image] = {}

    def image(self, target: str) -> Image:
        if target not in self._images:
            self._images[target] = image.build(target, self._folder / target)
        return self._images[target]

    def of(self, name: str) -> tuple[dict[str, Any], Image]:
        service = deploy.services()[name]
        return service, self.image(service["build"]["target"])

    def environment(self, name: str, here: dict[str, str]) -> dict[str, str]:
        service, built = self.of(name)
        given = {key: str(value) for key, value in service["environment"].items()}
        return built.environment(given | self._addresses | here)

    def run(self, name: str) -> str:
        """A one-shot service to its end; what it printed."""
        service, built = self.of(name)
        done = subprocess.run(
            built.argv(service["command"]),
            cwd=built.app,
            env=self.environment(name, {}),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def start(self, name: str, *more: str, **here: str) -> Iterator[subprocess.Popen[bytes]]:
        """A long-running service, with more arguments and other settings; killed at the end if it still runs."""
        service, built = self.of(name)
        with self._log(name).open("wb") as output:
            process = subprocess.Popen(
                [*built.argv(service["command"]), *more],
                cwd=built.app,
                env=self.environment(name, here),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def healthy(self, name: str, check: list[str], port: int) -> bool:
        """One run of a health check, with the port that the process has here."""
        _, built = self.of(name)
        words = [re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", word) for word in check if word != "CMD"]
        return (
            subprocess.run(built.argv(words), env=built.environment({}), capture_output=True, timeout=30).returncode
            == 0
        )

    async def becomes_healthy(self, name: str, check: list[str], port: int) -> None:
        try:
            await until(lambda: asyncio.to_thread(self.healthy, name, check, port), START_S, every_s=0.3)
        except TimeoutError:
            raise AssertionError(f"{name} is not healthy after {START_S} s:\n{self.log(name)}") from None

    def log(self, name: str) -> str:
        return self._log(name).read_text("utf-8")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def checks(name: str) -> list[list[str]]:
    """The health check of a service, and the one that its image carries."""
    service = deploy.services()[name]
    return [service["healthcheck"]["test"], deploy.health(service["build"]["target"])]


def grace_s(name: str) -> float:
    return deploy.seconds(deploy.services()[name]["stop_grace_period"])
