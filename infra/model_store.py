"""Model folders: fetched once, checked by hash, read by gateways and workers alike.

`<model_dir>/<id>/` is a plain Hugging Face folder plus `triptych.json`, which says where it came from and the size and
SHA-256 of each file. A folder is complete or absent: it is written under another name and renamed.
"""

import fcntl
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra import model_sources
from infra.model_sources import CannotFetch
from schemas.manifest import Manifest, Source

RECORD = "triptych.json"

# What is going on, how much is done, how much there is to do (both 0 while unknown).
Progress = Callable[[str, int, int], None]


class StoredFile(msgspec.Struct, frozen=True):
    size_bytes: int
    sha256: str


class Record(msgspec.Struct, frozen=True):
    """triptych.json."""

    source: Source
    files: dict[str, StoredFile]


def pull(manifest: Manifest, model_dir: Path, progress: Progress, *, verify: bool = False) -> Path:
    """The model's folder; fetched if it is missing, damaged or of another source than the manifest's.

    A folder that is there is checked by file sizes, and with `verify` by full hashes. Blocks; safe to call from several
    processes at once.

    Raises:
        CannotFetch: the source cannot be had, or is not what the manifest promises.
    """
    target = model_dir / manifest.id
    model_dir.mkdir(parents=True, exist_ok=True)
    with _only_one(model_dir / f".{manifest.id}.lock"):
        if _intact(target, manifest.source, verify):
            return target
        with tempfile.TemporaryDirectory(dir=model_dir, prefix=f".{manifest.id}-") as scratch:
            staging = Path(scratch) / manifest.id
            staging.mkdir()
            model_sources.fetch(manifest.source, staging, Path(scratch), progress)
            _write_record(staging, manifest.source, progress)
            if target.exists():
                target.rename(Path(scratch) / "replaced")
            staging.rename(target)
    return target


def _intact(folder: Path, source: Source, verify: bool) -> bool:
    path = folder / RECORD
    if not path.is_file():
        return False
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except msgspec.MsgspecError:
        return False  # a damaged record is a damaged folder: fetched again
    return record.source == source and all(
        (folder / name).is_file()
        and (folder / name).stat().st_size == file.size_bytes
        and not (verify and _sha256(folder / name) != file.sha256)
        for name, file in record.files.items()
    )


def _write_record(folder: Path, source: Source, progress: Progress) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if not paths:
        raise CannotFetch("the source holds no model file")
    files: dict[str, StoredFile] = {}
    for done, path in enumerate(paths, start=1):
        path.chmod(0o644)  # some writers leave files only their owner can read; containers run as somebody else
        files[str(path.relative_to(folder))] = StoredFile(path.stat().st_size, _sha256(path))
        progress("hash", done, len(paths))
    encoded = msgspec.json.encode(Record(source, files))
    (folder / RECORD).write_bytes(msgspec.json.format(encoded, indent=2))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock file; the second of two processes waits for the first and then finds its work done."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
