"""Plays the worker of a process that a file has taken over (probe.py), and says what that one could do.

`python -m tests.unit.workers.media.probing '["LAYER", ...]'`: on a kernel that refuses those layers.
`python -m tests.unit.workers.media.probing hang`: its process hangs, and so does the worker, having said its id.
"""

import json
import os
import re
import select
import socket
import sys
import tempfile
from io import RawIOBase
from pathlib import Path
from typing import Any, cast

import msgspec
from PIL import Image

from infra.clock import SystemClock
from schemas.manifest import MediaLimits
from tests.unit.workers.media import probe
from tests.unit.workers.media.pictures import saved, scene
from workers.encoder import Picture
from workers.media import Decoders, wire
from workers.media.pipe import Pipe
from workers.media.process import started

MEMORY_BYTES = 1 << 30
_STATUS = ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "NoNewPrivs", "Seccomp")


def main(refused: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, _udp() as udp, socket.create_server(("127.0.0.1", 0)) as tcp:
        os.chmod(folder, 0o777)
        victim = Path(folder, "victim")
        victim.write_bytes(b"untouched")
        victim.chmod(0o777)
        for number in range(20):  # beyond what the process opens itself
            os.set_inheritable(os.dup(tcp.fileno()), number % 2 == 0)
        task = {"victim": str(victim), "folder": folder, "refused": refused}
        task |= {"tcp_port": tcp.getsockname()[1], "udp_port": udp.getsockname()[1]}
        told = _probed(json.dumps(task))
        told["files"] = {path.name: path.is_file() and path.read_text() for path in Path(folder).iterdir()}
        told["heard"] = [name for name, one in (("tcp", tcp), ("udp", udp)) if select.select([one], [], [], 0)[0]]
        return told


def _udp() -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    return udp


def _probed(task: str) -> dict[str, Any]:
    process = started(probe.__name__, MEMORY_BYTES, task)
    asks, answers = process.stdin, process.stdout
    assert asks is not None and answers is not None
    ready = Pipe(cast("RawIOBase", answers), select.POLLIN, SystemClock())
    ready.bound(60)
    confinement = wire.receive_ready(ready)
    os.set_blocking(answers.fileno(), True)
    about = {"confinement": msgspec.to_builtins(confinement), "pid": process.pid, "parent": os.getpid()}
    about |= {"status": _status(process.pid), "network": [_network(process.pid), _network(os.getpid())]}
    about["peer"] = {name: probe.outcome(lambda name=name: _open(process.pid, name)) for name in ("environ", "mem")}
    asks.write(b"x")
    line = _line(answers)
    told: dict[str, Any] = json.loads(line)
    asks.close()
    about["exit"] = process.wait(10)
    return about | told


def _line(answers: Any) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        part = answers.read(65_536)
        assert part, f"the probe died: {line!r}"
        line += part
    return line


def _status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: values.split() for name, values in (line.split(":", 1) for line in lines) if name in _STATUS}


def _network(pid: int) -> str:
    try:
        return re.sub(r"\D", "", os.readlink(f"/proc/{pid}/ns/net"))
    except PermissionError:  # hidden, from all but root
        return ""


def _open(pid: int, name: str) -> None:
    with open(f"/proc/{pid}/{name}", "rb"):
        pass


def decodes() -> bool:
    """Whether all this leaves a process what it needs."""
    decoders = Decoders(1)
    picture = decoders.decode("image", "vision", saved(Image.fromarray(scene()), "PNG"), MediaLimits())
    decoders.close()
    return isinstance(picture, Picture) and bool((picture.rgb == scene()).all())


def hang() -> None:
    process = started(probe.__name__, MEMORY_BYTES, json.dumps({"then": "hang"}))
    assert process.stdin is not None and process.stdout is not None
    wire.receive_ready(cast("RawIOBase", process.stdout))
    process.stdin.write(b"x")
    assert process.stdout.read(1)  # it says so before it hangs
    print(process.pid, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "hang":
        hang()
    else:
        print(json.dumps(main(json.loads(sys.argv[1])) | {"decodes": decodes()}))
