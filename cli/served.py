"""Which models `triptych up` serves: those asked for, or all that come with it and can run here."""

from rich.console import Console

from cli.errors import CommandFailed
from infra import manifests, tesseract
from infra.settings import Settings
from schemas.manifest import Manifest

BY_DEFAULT = ("smollm2-135m", "smollm2-cascade", "triptych-omni-tiny")


def chosen(wanted: str, settings: Settings, console: Console, *, real_media: bool) -> list[Manifest]:
    """The models of a comma-separated list; of an empty one, the default ones that this machine can run.

    Raises:
        CommandFailed: one that was asked for cannot run here; says what is missing.
        UnknownModel, WrongManifest: as in infra.manifests.
    """
    names = [one.strip() for one in wanted.split(",") if one.strip()]
    found = [manifests.find(settings, one) for one in names or BY_DEFAULT]
    blind = {one.id for one in found if reads_pictures(one)} if real_media else set()
    if not blind:
        return found
    try:
        tesseract.find()
    except tesseract.Unusable as error:
        if names:
            raise CommandFailed(f"{', '.join(sorted(blind))}: {error}; {tesseract.INSTALL}") from error
        console.print(f"without {', '.join(sorted(blind))}: {error}; {tesseract.INSTALL}", style="yellow")
        return [one for one in found if one.id not in blind]
    return found


def reads_pictures(manifest: Manifest) -> bool:
    """Whether one of its encoders reads what is written in pictures."""
    return any(encoder.engine == "labels-ocr" for encoder in manifest.encoders.values())
