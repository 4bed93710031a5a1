"""`triptych topics`, and the topics that the local stack needs."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec
from rich.table import Table

from cli.errors import CommandFailed
from infra import manifests
from infra.settings import Settings
from schemas.errors import TriptychError
from schemas.manifest import Manifest
from topics import admin
from topics.names import topics_for

log = logging.getLogger(__name__)

LIMIT_S = 30.0


def served(settings: Settings) -> list[Manifest]:
    return list(manifests.served(settings).values())


def create(settings: Settings, models: Sequence[Manifest]) -> None:
    """Create what is missing; topics that exist are left as they are.

    Raises:
        CommandFailed: the broker does not do it in time.
    """
    try:
        asyncio.run(asyncio.wait_for(admin.create(settings, list(models)), LIMIT_S))
    except (TriptychError, TimeoutError, OSError) as error:
        raise CommandFailed(f"the topics cannot be created on {settings.kafka}: {error or 'no answer'}") from error


def topics_exist(settings: Settings, models: Sequence[Manifest], bootstrap: str) -> bool:
    """Create what is missing on that broker; False, with a line in our log, when it cannot be done now."""
    try:
        create(msgspec.structs.replace(settings, kafka=bootstrap), models)
    except CommandFailed as error:
        log.warning("%s", error)
        return False
    return True


def table(models: Sequence[Manifest]) -> Table:
    """The topics that serving these models needs."""
    rows = Table("topic", "partitions", "retention", "cleanup", "written by", "read by")
    for one in topics_for(list(models)):
        days = one.retention_ms / 86_400_000
        rows.add_row(one.name, str(one.partitions), f"{days:g} d", one.cleanup, one.written_by, one.read_by)
    return rows
