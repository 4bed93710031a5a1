"""A Valkey for one test alone, that can be hurt: what an operator's mistake, a full disk or a fail-over do to one."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from cli.local import ports, valkey
from cli.local.process import Child, wait_ready
from tests.waiting import until

# Nobody listens there.
DEAD_PRIMARY = ("127.0.0.1", "1")
PAUSE_MS = 1_500
# What takes it 12 s to read, unless it is told to hurry. It answers clients between two keys: each is as large as what
# it reads in one go, and cannot be compressed.
LOADED_KEYS, LOADED_KEY_BYTES, LOAD_DELAY_US = 600, 1_024, 20_000


class OwnValkey:
    """Keeps what it is told on disk, each write at once."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._log = folder / "valkey.log"
        self.port = ports.free()
        self._child: Child | None = None
        self.url = valkey.url(self.port)

    def start(self, *settings: str, wait: bool = True) -> None:
        part = valkey.part(self.port, self._log, self._data)
        argv = [*part.argv, "--appendfsync", "always", *settings]
        self._child = Child(msgspec.structs.replace(part, argv=argv))
        if wait:
            wait_ready(self._child)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def forget(self) -> None:
        """While it does not run: its data are gone."""
        shutil.rmtree(self._data)

    @property
    def snapshot(self) -> Path:
        """Where it writes its snapshots."""
        return self._data / "dump.rdb"

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Callable[..., Any]]:
        """Commands on one connection of its own, errors as they are."""
        async with Redis.from_url(self.url, single_connection_client=True) as client:
            yield client.execute_command

    async def info(self, name: str) -> str:
        async with self.admin() as tell:
            return str((await tell("INFO", "everything"))[name])


Fault: TypeAlias = Callable[[OwnValkey], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def disk_full(server: OwnValkey) -> AsyncIterator[None]:
    """MISCONF: it cannot write its snapshot, for there is a folder in its place."""

    async def snapshot_is(state: str) -> None:
        await tell("BGSAVE")
        await until(lambda: _is(server, "rdb_bgsave_in_progress", "0"))
        await until(lambda: _is(server, "rdb_last_bgsave_status", state))

    async with server.admin() as tell:
        await tell("CONFIG", "SET", "save", "3600 1000000")
        (server.snapshot / "in the way").mkdir(parents=True)
        await snapshot_is("err")
        try:
            yield
        finally:
            shutil.rmtree(server.snapshot)
            await snapshot_is("ok")


@asynccontextmanager
async def long_script(server: OwnValkey) -> AsyncIterator[None]:
    """BUSY: somebody's script does not end."""
    async with server.admin() as tell, server.admin() as run:
        await tell("CONFIG", "SET", "busy-reply-threshold", 1)
        running = asyncio.create_task(run("EVAL", "while true do end", 0))
        await until(lambda: _refuses(tell, "PING"))
        try:
            yield
        finally:
            await tell("SCRIPT", "KILL")
            await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def became_replica(server: OwnValkey) -> AsyncIterator[None]:
    """READONLY: another one is the primary now, as far as it knows."""
    async with server.admin() as tell:
        await tell("REPLICAOF", *DEAD_PRIMARY)
        try:
            yield
        finally:
            await tell("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def lost_primary(server: OwnValkey) -> AsyncIterator[None]:
    """MASTERDOWN: a replica that knows how old its data are."""
    async with server.admin() as tell:
        await tell("CONFIG", "SET", "replica-serve-stale-data", "no")
        async with became_replica(server):
            yield


@asynccontextmanager
async def _set(server: OwnValkey, name: str, broken: object, whole: object) -> AsyncIterator[None]:
    async with server.admin() as tell:
        await tell("CONFIG", "SET", name, broken)
        try:
            yield
        finally:
            await tell("CONFIG", "SET", name, whole)


def lost_replicas(server: OwnValkey) -> AbstractAsyncContextManager[None]:
    """NOREPLICAS."""
    return _set(server, "min-replicas-to-write", 1, 0)


def out_of_memory(server: OwnValkey) -> AbstractAsyncContextManager[None]:
    """OOM: nothing may be evicted."""
    return _set(server, "maxmemory", 1, 0)


@asynccontextmanager
async def paused(server: OwnValkey) -> AsyncIterator[None]:
    """Silence; it ends by itself. What is sent meanwhile is answered then."""
    async with server.admin() as tell:
        await tell("CLIENT", "PAUSE", PAUSE_MS, "ALL")
        try:
            yield
        finally:
            await tell("PING")


@asynccontextmanager
async def too_many_clients(server: OwnValkey) -> AsyncIterator[None]:
    """All connections are lost, and strangers were faster to take their places."""
    async with server.admin() as tell:
        await tell("CONFIG", "SET", "maxclients", 1)
        for kind in ("normal", "pubsub"):
            await tell("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        try:
            yield
        finally:
            await tell("CONFIG", "SET", "maxclients", 1_000)


@asynccontextmanager
async def killed(server: OwnValkey) -> AsyncIterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


@asynccontextmanager
async def killed_and_emptied(server: OwnValkey) -> AsyncIterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.forget()
        server.start()


@asynccontextmanager
async def loading(server: OwnValkey) -> AsyncIterator[None]:
    """LOADING: it has been restarted, and there is much to read."""
    async with server.admin() as tell:
        filler = [(f"filler:{number}", random.randbytes(LOADED_KEY_BYTES)) for number in range(LOADED_KEYS)]
        await tell("MSET", *chain.from_iterable(filler))
        await tell("BGREWRITEAOF")
        await until(lambda: _is(server, "aof_rewrite_scheduled", "0"))
        await until(lambda: _is(server, "aof_rewrite_in_progress", "0"))
    server.kill()
    slow = ["--key-load-delay", str(LOAD_DELAY_US), "--loading-process-events-interval-bytes", str(LOADED_KEY_BYTES)]
    server.start(*slow, wait=False)
    await until(lambda: _loads(server))
    try:
        yield
    finally:
        async with server.admin() as tell:
            await tell("CONFIG", "SET", "key-load-delay", 0)
        await until(lambda: _is(server, "loading", "0"))


async def _is(server: OwnValkey, name: str, value: str) -> bool:
    return await server.info(name) == value


async def _refuses(tell: Callable[..., Any], *command: str) -> bool:
    try:
        await tell(*command)
    except RedisError:
        return True
    return False


async def _loads(server: OwnValkey) -> bool:
    try:
        return await _is(server, "loading", "1")
    except RedisError:
        return False
