"""`triptych store`: tidying up the object store."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from cli.errors import CommandFailed
from infra import redis_client, retention
from infra.artifact_notes import RedisArtifactNotes
from infra.blobs import S3Blobs
from infra.clock import Clock
from infra.faults import Refused, Unavailable
from infra.settings import Settings
from infra.sweeper import Sweeper, Swept


def sweep(settings: Settings, dry_run: bool, clock: Clock, console: Console, errors: Console) -> bool:
    """Delete what has expired, unless `dry_run`, and print what there was; False when some of it is still there.

    Raises:
        CommandFailed: the object store or Redis does not answer, or refuses.
    """
    with console.status("looking") as shown:
        try:
            found = asyncio.run(_sweep(settings, dry_run, clock, lambda one: shown.update(_progress(one))))
        except (Unavailable, Refused) as error:
            raise CommandFailed(f"{settings.s3_endpoint}, {settings.redis}: {error}") from error
    console.print(_table(found, dry_run))
    for one in found:
        for key, why in one.failures.items():
            errors.print(f"{key} could not be deleted: {why}", markup=False, highlight=False, soft_wrap=True)
    return not any(one.failures for one in found)


async def _sweep(settings: Settings, dry_run: bool, clock: Clock, tell: Callable[[Swept], None]) -> list[Swept]:
    async with AsyncExitStack() as parts:
        redis = redis_client.connect(settings.redis, max_connections=1)
        parts.push_async_callback(redis.aclose)
        blobs = S3Blobs(settings, clock)
        parts.push_async_callback(blobs.close)
        await blobs.start()
        sweeper = Sweeper(blobs, RedisArtifactNotes(redis), retention.kinds(settings), clock)
        return await sweeper.sweep(dry_run=dry_run, tell=tell)


def _progress(one: Swept) -> str:
    return f"{one.prefix} {one.objects} objects, {one.expired} expired"


def _table(found: Sequence[Swept], dry_run: bool) -> Table:
    rows = Table("objects of", "found", "size", "would be deleted" if dry_run else "deleted", "size", "failed")
    for one in found:
        gone = one.expired - len(one.failures)
        rows.add_row(
            one.prefix,
            str(one.objects),
            decimal(one.size_bytes),
            str(gone),
            decimal(one.expired_bytes),
            str(len(one.failures)),
        )
    return rows
