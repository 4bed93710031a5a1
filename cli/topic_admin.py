"""`triptych topics`, and the topics that the local stack needs."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import msgspec
from rich.table import Table

from cli.errors import CommandFailed
from infra import manifests
from infra.faults import PortFault
from infra.settings import Settings
from schemas.manifest import Manifest
from topics import admin
from topics.names import topics_for

log = logging.getLogger(__name__)

DAY_MS = 86_400_000

T = TypeVar("T")


def served(settings: Settings) -> list[Manifest]:
    return list(manifests.served(settings).values())


def create(settings: Settings, models: Sequence[Manifest]) -> list[str]:
    """Create what is missing; a line for each thing that was done.

    Raises:
        CommandFailed: the broker does not do it in time.
    """
    return _ask(settings, admin.create(settings, models))


def topics_exist(settings: Settings, models: Sequence[Manifest], bootstrap: str) -> bool:
    """Create what is missing on that broker; False, with a line in our log, when it cannot be done now."""
    try:
        create(msgspec.structs.replace(settings, kafka=bootstrap), models)
    except CommandFailed as error:
        log.warning("%s", error)
        return False
    return True


def table(settings: Settings, models: Sequence[Manifest]) -> Table:
    """What the topic table asks for beside what the broker has.

    Raises:
        CommandFailed: the broker does not answer in time.
    """
    found = {one.name: one for one in _ask(settings, admin.list_topics(settings, models))}
    rows = Table("topic", "partitions", "messages", "lag", "retention", "written by", "read by")
    for one in topics_for(list(models)):
        there = found[one.name]
        rows.add_row(
            one.name,
            str(there.partitions) if there.partitions else "missing: triptych topics create",
            str(there.messages),
            ", ".join(f"{group}: {lag}" for group, lag in there.lag.items()),
            f"{one.retention_ms / DAY_MS:g} d",
            one.written_by,
            one.read_by,
        )
    return rows


def _ask(settings: Settings, question: Coroutine[object, object, T]) -> T:
    """topics.admin bounds its own waits."""
    try:
        return asyncio.run(question)
    except PortFault as error:
        raise CommandFailed(f"the broker at {settings.kafka}: {error}") from error
