"""Model folders: fetched once, checked by hash, read by gateways and workers alike.

`<model_dir>/<id>/` is a plain Hugging Face folder, `<model_dir>/weights/<name>-<digest>/` what an encoder or decoder
needs; each with `triptych.json`, which says where it came from and the size and SHA-256 of each file. A folder is
complete or absent: it is written under another name and renamed.
"""

import fcntl
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra import model_paths, model_sources
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


class Folder(msgspec.Struct, frozen=True):
    """One of the folders that a served model is made of. Two models may have one in common."""

    path: Path
    source: Source
    base: Path | None = None  # of a delta: the folder that it changes


def folders(manifest: Manifest, model_dir: Path) -> list[Folder]:
    """What has to be on disk, in an order in which it can be made. Files that come with Triptych are not among it."""
    llm = Folder(model_paths.of_llm(manifest, model_dir), manifest.source)
    needed = [llm]
    if manifest.source.base_source:
        base = Folder(model_dir / manifest.source.base, manifest.source.base_source)
        needed = [base, msgspec.structs.replace(llm, base=base.path)]
    weights = {model_paths.of_weights(manifest, name, model_dir): one for name, one in manifest.weights.items()}
    return needed + [Folder(path, one) for path, one in weights.items() if one.kind != "built-in"]


def present(manifest: Manifest, model_dir: Path) -> bool:
    """Whether all folders are there; their files are not looked at."""
    return all((one.path / RECORD).is_file() for one in folders(manifest, model_dir))


def pull(manifest: Manifest, model_dir: Path, progress: Progress, *, verify: bool = False) -> Path:
    """The folder of the model's LLM; it and those of all weights are fetched if they are missing, damaged or of another
    source than the manifest's.

    A folder that is there is checked by file sizes, and with `verify` by full hashes. Blocks; safe to call from several
    processes at once.

    Raises:
        CannotFetch: a source cannot be had, or is not what the manifest promises.
    """
    for one in folders(manifest, model_dir):
        _pull(one, progress, verify)
    for source in manifest.weights.values():
        if source.kind == "built-in":
            model_sources.built_in(source)
    return model_paths.of_llm(manifest, model_dir)


def _pull(folder: Folder, progress: Progress, verify: bool) -> None:
    target, parent = folder.path, folder.path.parent
    parent.mkdir(parents=True, exist_ok=True)
    with _only_one(parent / f".{target.name}.lock"):
        if _intact(target, folder.source, verify):
            return
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{target.name}-") as scratch:
            staging = Path(scratch) / target.name
            staging.mkdir()
            model_sources.fetch(folder.source, staging, Path(scratch), progress, folder.base)
            _write_record(staging, folder.source, progress)
            if target.exists():
                target.rename(Path(scratch) / "replaced")
            staging.rename(target)


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
