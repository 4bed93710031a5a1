"""`triptych models`: which models are known, which are on disk, and fetching them."""

import re
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.errors import CommandFailed
from infra import manifests, model_files, model_store
from infra.settings import Settings
from schemas.manifest import Limits, Manifest, Source

HUB_PREFIX = "hf:"
# Until somebody decides otherwise: what two cores can prefill while a reader is still patient.
HUB_CONTEXT_TOKENS = 2048


def fetch(manifest: Manifest, settings: Settings, console: Console) -> Path:
    """The model's folder; shows a bar while it is fetched and nothing when it is there."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        shown = _Shown(bar, manifest.id, console)
        return model_store.pull(manifest, Path(settings.model_dir), shown.report)


class _Shown:
    """One task of the bar for each phase; where there is no terminal, one line."""

    def __init__(self, bar: Progress, model: str, console: Console) -> None:
        self._bar = bar
        self._model = model
        self._console = console
        self._tasks: dict[str, TaskID] = {}

    def report(self, phase: str, done: int, total: int) -> None:
        if phase not in self._tasks:
            self._tasks[phase] = self._bar.add_task(f"{self._model}: {phase}", total=None)
            if not self._console.is_terminal:
                self._console.print(f"{self._model}: {phase}", highlight=False)
        self._bar.update(self._tasks[phase], completed=done, total=total or None)


def from_hub(name: str) -> Manifest:
    """The manifest for `hf:org/name[@revision]`.

    Raises:
        CommandFailed: it does not look like one.
    """
    match = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name)
    if match is None:
        raise CommandFailed(f"{name!r} should read hf:<organisation>/<model>[@revision]")
    repo, revision = match.group(1), match.group(2) or "main"
    model = re.sub(r"[^a-z0-9._-]", "-", repo.split("/")[1].lower())
    return Manifest(id=model, source=Source("hf", repo=repo, revision=revision), limits=Limits(HUB_CONTEXT_TOKENS))


def write_manifest(manifest: Manifest, folder: Path) -> Path:
    """A TOML file that `TRIPTYCH_MANIFEST_DIR` can point at; one that is there already is left alone."""
    path = folder / f"{manifest.id}.toml"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    source = manifest.source
    path.write_text(
        f'id = "{manifest.id}"\n\n'
        f'[source]\nkind = "hf"\nrepo = "{source.repo}"\nrevision = "{source.revision}"\n\n'
        f"[limits]\ncontext_tokens = {manifest.limits.context_tokens}\n"
    )
    return path


def pull(name: str, settings: Settings, console: Console) -> None:
    """Fetch a known model by id, or one from the Hugging Face hub by `hf:org/name`."""
    manifest = from_hub(name) if name.startswith(HUB_PREFIX) else manifests.find(settings, name)
    folder = fetch(manifest, settings, console)
    model_files.read(folder)
    console.print(f"{manifest.id} is at {folder}", highlight=False, soft_wrap=True)
    if name.startswith(HUB_PREFIX):
        folder_of_manifests = Path(settings.manifest_dir or Path(settings.model_dir).parent / "manifests")
        path = write_manifest(manifest, folder_of_manifests)
        console.print(f"its manifest: {path}", highlight=False, soft_wrap=True)
        console.print(
            f"serve it: TRIPTYCH_MANIFEST_DIR={folder_of_manifests} triptych up --model {manifest.id}",
            highlight=False,
            soft_wrap=True,
        )


def table(settings: Settings) -> Table:
    rows = Table("model", "on disk", "context", "source", "served")
    for manifest in manifests.load_all(settings).values():
        here = (
            "yes"
            if model_store.present(manifest, Path(settings.model_dir))
            else f"no: triptych models pull {manifest.id}"
        )
        rows.add_row(
            manifest.id,
            here,
            str(manifest.limits.context_tokens),
            _origin(manifest),
            "by default" if manifest.id in settings.model_ids else "",
        )
    return rows


def _origin(manifest: Manifest) -> str:
    """Where the LLM comes from, and how many more sets of weights belong to the model."""
    source = manifest.source
    if manifest.llm:
        llm = f"the LLM of {manifest.llm}"
    elif source.kind == "delta":
        llm = f"a delta on {source.base}"
    else:
        llm = source.repo or f"{source.package} {source.version}"
    return f"{llm}; {', '.join(sorted(manifest.weights))}" if manifest.weights else llm
