"""`triptych status`: what runs, who owns which partition, and who works in which pool."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cli.errors import CommandFailed
from cli.gateway_client import GatewayClient
from cli.local import state
from cli.local.state import StackState
from infra import redis_client
from infra.clock import Clock
from infra.faults import Refused, Unavailable
from infra.leases import RedisLeases
from infra.pool_members import RedisPoolMembers
from infra.ports import PoolView
from infra.settings import Settings
from schemas.manifest import Manifest
from topics import names


def show(settings: Settings, home: Path, models: Sequence[Manifest], clock: Clock, console: Console) -> bool:
    """Print it all; False when the gateway is not ready.

    Raises:
        CommandFailed: no gateway answers, or Redis does not.
    """
    running = state.running(home)
    if running is not None:
        console.print(parts(running))
    else:
        console.print(f"no local stack in {home}; asking the configured services", style="dim", highlight=False)
    settings, url = state.applied(settings, home), state.gateway_url(settings, home)
    llms, needed = list({one.pool: one for one in models}.values()), names.media_pools(models)
    views, members = asyncio.run(look(settings, llms, needed))
    for llm, seen in zip(llms, views, strict=True):
        console.print(pool(llm, seen, clock.now()))
    if needed:
        console.print(media_pools(dict(zip(needed, members, strict=True))))
    status, body = GatewayClient(url).get("/readyz")
    console.print(f"gateway {url}: {'ready' if status == 200 else 'not ready'}  {body.decode()}", markup=False)
    return status == 200


def parts(running: StackState) -> Table:
    alive = state.ours_alive(running)
    rows = Table("part", "pid", "state", title=f"local stack, broker: {running.broker}", title_justify="left")
    for name, pid in {state.SUPERVISOR: running.supervisor, **running.pids}.items():
        rows.add_row(name, str(pid), "runs" if name in alive else "gone")
    return rows


async def look(
    settings: Settings, llms: Sequence[Manifest], pools: Sequence[str]
) -> tuple[list[PoolView], list[Collection[str]]]:
    """Who serves each of these LLMs now, and who works in each of the pools of encoders and decoders."""
    async with aclosing(redis_client.connect(settings.redis, max_connections=1)) as client:
        try:
            views = [await RedisLeases(client, one.pool).view(one.partitions) for one in llms]
            return views, await RedisPoolMembers(client).look(pools)
        except (Unavailable, Refused) as error:
            raise CommandFailed(f"Redis at {settings.redis}: {error}") from None


def pool(manifest: Manifest, seen: PoolView, now: float) -> Table:
    """One row a worker: its last beat and the partitions it owns."""
    title = f"{manifest.pool}: {len(seen.owners)} of {manifest.partitions} partitions owned"
    rows = Table("worker", "engine", "partitions", "running", "waiting", "tokens/s", "beat", title=title)
    rows.title_justify = "left"
    for name, beat in sorted(seen.beats.items()):
        owned = sorted(partition for partition, owner in seen.owners.items() if owner.worker == name)
        rows.add_row(
            f"{name}:{beat.epoch}",
            beat.engine,
            " ".join(map(str, owned)),
            f"{beat.running}/{beat.slots}",
            str(beat.waiting),
            f"{beat.tokens_per_s:.1f}",
            f"{max(0.0, now - beat.at):.1f} s ago",
        )
    return rows


def media_pools(seen: Mapping[str, Collection[str]]) -> Table:
    """One row a pool of encoders or decoders."""
    rows = Table("pool", "workers", "who", title="encoders and decoders", title_justify="left")
    for name, workers in seen.items():
        rows.add_row(name, str(len(workers)), " ".join(sorted(workers)) or "nobody works here")
    return rows
