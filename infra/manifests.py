"""Model manifests: the built-in ones beside this file and those of `settings.manifest_dir`, checked when read."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import inspect

from infra.settings import Settings
from schemas.manifest import Manifest, Source

BUILT_IN = Path(__file__).parent / "models"

# What each kind of source cannot do without.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "pypi-gguf": ("package", "version", "member", "sha256"),
    "hf": ("repo", "revision"),
}


class WrongManifest(Exception):
    """A manifest that cannot be used; the message names the file, the key and what it may hold."""


class UnknownModel(WrongManifest):
    """A served model that no manifest describes."""


def load_all(settings: Settings) -> dict[str, Manifest]:
    """Every known model by id. A manifest of `settings.manifest_dir` replaces a built-in one of the same id.

    Raises:
        WrongManifest: a file is faulty, the folder does not exist, or two files of one folder share an id.
    """
    known = _read_folder(BUILT_IN)
    if settings.manifest_dir:
        known |= _read_folder(Path(settings.manifest_dir))
    return known


def served(settings: Settings) -> dict[str, Manifest]:
    """The models of `settings.model_ids`, in that order.

    Raises:
        UnknownModel: an id has no manifest.
        WrongManifest: as load_all.
    """
    known = load_all(settings)
    return {model: _known(known, model) for model in settings.model_ids}


def find(settings: Settings, model: str) -> Manifest:
    """The manifest of one model.

    Raises:
        UnknownModel: there is none. WrongManifest: as load_all.
    """
    return _known(load_all(settings), model)


def _known(known: Mapping[str, Manifest], model: str) -> Manifest:
    if model not in known:
        raise UnknownModel(f"no manifest for model {model!r}; known: {', '.join(sorted(known))}")
    return known[model]


def read(path: Path) -> Manifest:
    """One manifest file.

    Raises:
        WrongManifest: it is no TOML, or a key is missing, unknown, of the wrong type or out of range.
    """
    try:
        manifest = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Manifest)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongManifest(f"{path}: not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise WrongManifest(f"{path}: {_explain(str(error))}") from error
    _check_source(path, manifest.source)
    return manifest


def _read_folder(folder: Path) -> dict[str, Manifest]:
    if not folder.is_dir():
        raise WrongManifest(f"{folder}: no such folder of manifests")
    found: dict[str, Manifest] = {}
    for path in sorted(folder.glob("*.toml")):
        manifest = read(path)
        if manifest.id in found:
            raise WrongManifest(f"{path}: id: {manifest.id!r} is taken by another file of this folder")
        found[manifest.id] = manifest
    return found


def _check_source(path: Path, source: Source) -> None:
    for key in _REQUIRED[source.kind]:
        if not getattr(source, key):
            raise WrongManifest(f"{path}: source.{key}: required for kind {source.kind!r}")
    if source.sha256 and not re.fullmatch("[0-9a-f]{64}", source.sha256):
        raise WrongManifest(f"{path}: source.sha256: expected 64 lower-case hex digits")


def _explain(message: str) -> str:
    """msgspec's message, led by the key and followed by what that key may hold."""
    what, _, where = message.partition(" - at `$")
    keys = [key for key in where.rstrip("`").lstrip(".").split(".") if key]
    allowed = _allowed(keys)
    return f"{'.'.join(keys) + ': ' if keys else ''}{what}{f' (allowed: {allowed})' if allowed else ''}"


def _allowed(keys: Iterable[str]) -> str:
    node: inspect.Type = inspect.type_info(Manifest)
    for key in keys:
        node = _step(node, key)
    return _describe(node)


def _step(node: inspect.Type, key: str) -> inspect.Type:
    name, index, _ = key.partition("[")
    if isinstance(node, inspect.StructType):
        node = next(field.type for field in node.fields if field.name == name)
    return node.item_type if index and isinstance(node, inspect.VarTupleType) else node


def _describe(node: inspect.Type) -> str:
    match node:
        case inspect.StructType(fields=fields):
            return "keys " + ", ".join(field.name for field in fields)
        case inspect.LiteralType(values=values):
            return ", ".join(str(value) for value in values)
        case inspect.VarTupleType(item_type=item):
            return f"a list of {_describe(item)}"
        case inspect.IntType():
            return "an integer" + _bounds(node)
        case inspect.StrType(pattern=pattern):
            return f"text matching {pattern}" if pattern else "text"
        case _:
            return ""


def _bounds(node: inspect.IntType) -> str:
    limits = {"at least": node.ge, "at most": node.le, "a multiple of": node.multiple_of}
    return "".join(f", {word} {limit}" for word, limit in limits.items() if limit is not None)
