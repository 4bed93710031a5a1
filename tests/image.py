"""An image without a container engine: the folder its Dockerfile copies, a Python that sees only what it installs."""

import importlib.metadata as metadata
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.deploy import requirements
from tests import deploy


class Image(msgspec.Struct, frozen=True):
    """`app` is its working folder, `python` its interpreter."""

    target: str
    app: Path
    python: Path

    def argv(self, command: list[str]) -> list[str]:
        """A command of the image, as it would be found there."""
        assert command[0] == "python", command
        return [str(self.python), *command[1:]]

    def environment(self, given: dict[str, str]) -> dict[str, str]:
        """What a process in it sees: the image's ENV, then what it is given; nothing of ours."""
        return {"PATH": f"{self.python.parent}:/usr/bin:/bin"} | deploy.environment(self.target) | given


def build(target: str, folder: Path) -> Image:
    """Lay the image out under `folder`. Installs nothing: it links what is installed here.

    Raises:
        PackageNotFoundError: something that the image installs is not installed here, or not in that version.
    """
    app = folder / "app"
    app.mkdir(parents=True)
    for source, destination in deploy.copies(target).items():
        (app / destination).symlink_to(deploy.ROOT / source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=60)
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    lines = requirements.requirements(deploy.ROOT / "pyproject.toml", *deploy.extras(f"{target}.txt"))
    for path in _top_level([*lines, "pip"]):
        (site / path.name).symlink_to(path)
    return Image(target, app, folder / "venv" / "bin" / "python")


def _top_level(lines: list[str]) -> set[Path]:
    found: set[Path] = set()
    for one in _closure(lines):
        for file in one.files or []:
            if ".." not in file.parts:  # scripts and data outside site-packages
                found.add(Path(os.fspath(one.locate_file(file.parts[0]))))
    return found


def _closure(lines: Iterable[str]) -> list[metadata.Distribution]:
    """The distributions that these requirements bring along, as far as they are installed."""
    named = [Requirement(line) for line in lines]
    for wanted in named:
        if not wanted.specifier.contains(version := metadata.version(wanted.name), prereleases=True):
            raise metadata.PackageNotFoundError(f"{wanted}, here {version}")
    todo = [(wanted, "") for wanted in named]
    seen: dict[tuple[str, str], metadata.Distribution] = {}
    while todo:
        wanted, extra = todo.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        if (one := next(metadata.distributions(name=wanted.name), None)) is None:
            continue  # the image has it and this machine does without: a stricter test, not a laxer one
        for name in ["", *wanted.extras]:
            if (key := (canonicalize_name(wanted.name), name)) not in seen:
                seen[key] = one
                todo += [(Requirement(line), name) for line in one.requires or []]
    return list(seen.values())
