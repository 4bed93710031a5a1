"""The published figures, docs/bench/data/<bench>.json."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.published import Head

FOLDER = Path("docs/bench/data")
NAMES = {
    "sim": "sim engine: modelled workers, nothing is computed",
    "stub": "stub engine: no model runs",
    "vllm": "vLLM and real models",
    "none": "no engine takes part",
}


class NotYet(Exception):
    """That bench has no figures yet."""


class Published:
    """All files of one checkout; each is read once."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._read: dict[str, bytes] = {}

    def get(self, bench: str) -> dict[str, Any]:
        """Raises NotYet."""
        return dict(msgspec.json.decode(self._bytes(bench)))

    def head(self, bench: str) -> Head:
        """Raises NotYet."""
        return msgspec.convert(self.get(bench)["head"], Head)

    def digest(self, bench: str) -> str:
        """Of the whole file. Raises NotYet."""
        return hashlib.sha256(self._bytes(bench)).hexdigest()

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def _bytes(self, bench: str) -> bytes:
        if bench not in self._read:
            try:
                self._read[bench] = (self._folder / f"{bench}.json").read_bytes()
            except FileNotFoundError as error:
                raise NotYet(bench) from error
        return self._read[bench]


def link(bench: str, head: Head) -> str:
    """What engine it was, and the file that says the rest; for the README."""
    return f"*{NAMES[head.engine]}; [{bench}.json]({FOLDER}/{bench}.json)*"


def origin(head: Head) -> str:
    """What made it, in a line."""
    machine = head.machine
    cores = f"{machine.cores} cores ({machine.processor}), load {machine.load:g}"
    return f"*{NAMES[head.engine]}; `{head.command}`, {head.date[:10]}, commit `{head.commit}`, {cores}*"
