"""Model manifests: the built-in ones beside this file and those of `settings.manifest_dir`, checked when read."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from infra import manifest_checks, manifest_errors
from infra.model_paths import BUILT_IN
from infra.settings import Settings
from schemas.manifest import Manifest

T = TypeVar("T")

# What models with one LLM have in common: of the model that `llm` names, never of their own.
SHARED = ("source", "limits", "engine", "partitions")
_OF_THE_LLM = {"chat", "json", "logprobs"}  # capabilities


class WrongManifest(Exception):
    """A manifest that cannot be used; the message names the file, the key and what it may hold."""


class UnknownModel(WrongManifest):
    """A served model that no manifest describes."""


class _Written(msgspec.Struct, frozen=True):
    """A file, parsed but not yet checked."""

    path: Path
    table: dict[str, Any]

    @property
    def llm(self) -> object:
        return self.table.get("llm")

    @property
    def leans(self) -> int:
        """How many kinds of other manifests may have to be read first."""
        source = self.table.get("source")
        return 2 if self.llm else int(isinstance(source, dict) and source.get("kind") == "delta")

    def wrong(self, what: str) -> WrongManifest:
        return WrongManifest(f"{self.path}: {what}")


def load_all(settings: Settings) -> dict[str, Manifest]:
    """Every known model by id. A manifest of `settings.manifest_dir` replaces a built-in one of the same id.

    Raises:
        WrongManifest: a file is faulty, the folder does not exist, or two files of one folder share an id.
    """
    written = _read_folder(BUILT_IN)
    if settings.manifest_dir:
        written |= _read_folder(Path(settings.manifest_dir))
    found: dict[str, Manifest] = {}
    for model, one in sorted(written.items(), key=lambda item: item[1].leans):
        found[model] = _complete(one, written, found)
    return {model: found[model] for model in written}


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
    """One manifest file that leans on no other.

    Raises:
        WrongManifest: it is no TOML, or a key is missing, unknown, of the wrong type, out of range or at odds with
            another one.
    """
    return _complete(_parse(path), {}, {})


def _parse(path: Path) -> _Written:
    try:
        return _Written(path, tomllib.loads(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongManifest(f"{path}: not TOML: {error}") from error


def _read_folder(folder: Path) -> dict[str, _Written]:
    if not folder.is_dir():
        raise WrongManifest(f"{folder}: no such folder of manifests")
    found: dict[str, _Written] = {}
    for path in sorted(folder.glob("*.toml")):
        one = _parse(path)
        model = one.table.get("id")
        if not isinstance(model, str):
            raise one.wrong("id: required (allowed: text)")
        if model in found:
            raise one.wrong(f"id: {model!r} is taken by another file of this folder")
        found[model] = one
    return found


def _complete(one: _Written, written: Mapping[str, _Written], found: Mapping[str, Manifest]) -> Manifest:
    table = one.table | _borrowed(one, written) if one.llm else one.table
    try:
        manifest = msgspec.convert(table, Manifest)
    except msgspec.ValidationError as error:
        raise one.wrong(manifest_errors.explain(str(error), table)) from error
    for problem in manifest_checks.problems(manifest):
        raise one.wrong(problem)
    if manifest.llm:
        _check_capabilities(one, manifest, found[manifest.llm])
    return _with_base(one, manifest, written, found) if manifest.source.kind == "delta" else manifest


def _borrowed(one: _Written, written: Mapping[str, _Written]) -> dict[str, Any]:
    """The tables that the model named by `llm` lends."""
    lender = _other(one, "llm", one.llm, written)
    if lender.llm:
        raise one.wrong(f"llm: {one.llm!r} shares the LLM of another model itself (allowed: {lender.llm!r})")
    for key in SHARED:
        if key in one.table:
            raise one.wrong(f"{key}: not beside llm; it is that of {one.llm!r}, whose workers run both")
    return {key: lender.table[key] for key in SHARED if key in lender.table}


def _with_base(
    one: _Written, manifest: Manifest, written: Mapping[str, _Written], found: Mapping[str, Manifest]
) -> Manifest:
    """The manifest, its source saying where the base's weights come from."""
    source = manifest.source
    if source.base_source:
        raise one.wrong("source.base_source: never written, it is that of the model named by base")
    if _other(one, "source.base", source.base, written).leans:
        raise one.wrong(f"source.base: {source.base!r} has no weights of its own (allowed: a model that has)")
    full = msgspec.structs.replace(source, base_source=found[source.base].source)
    return msgspec.structs.replace(manifest, source=full)


def _check_capabilities(one: _Written, manifest: Manifest, lender: Manifest) -> None:
    for number, capability in enumerate(manifest.capabilities):
        if capability in _OF_THE_LLM and capability not in lender.capabilities:
            raise one.wrong(f"capabilities[{number}]: {capability!r} is not among those of {lender.id!r}, its LLM")


def _other(one: _Written, key: str, model: object, known: Mapping[str, T]) -> T:
    if not isinstance(model, str) or model not in known:
        raise one.wrong(f"{key}: no manifest of a model {model!r} (allowed: {', '.join(sorted(known)) or 'none'})")
    return known[model]
