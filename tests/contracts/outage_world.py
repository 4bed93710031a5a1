"""All that talks to Redis, over one client: every verb of every port, and the tasks of workers and gateways."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from redis.asyncio import Redis

from infra.alive import RedisLives, keep_alive
from infra.artifact_notes import RedisArtifactNotes
from infra.clock import SystemClock
from infra.file_records import RedisFileRecords
from infra.follower import RedisFollower
from infra.leases import RedisLeases
from infra.metrics import Metrics
from infra.pool_members import Membership, RedisPoolMembers
from infra.ports import Incarnation, Outgoing
from infra.prefix_index import CacheEvent, PrefixIndex
from infra.redis_client import ping
from infra.results import RedisResults
from infra.signals import RedisSignals
from schemas.files import FileRecord
from schemas.jobs import GenerateJob, Head, Placement
from schemas.signals import Beat
from schemas.steering import Ask, WorkerView
from tests.contracts.result_worlds import ALICE, BOB, finished, new_model, tokens
from tests.unit.workers.pool import job
from topics.steering.affinity import AffinityParams
from topics.steering.blocks import Namespace, begin, extend
from workers.block_map import BlockMap
from workers.engine import CacheBatch, Stored
from workers.feed import Feed
from workers.outbox import Account, Outbox
from workers.reservations import Reservations

Verb: TypeAlias = Callable[[], Awaitable[Any]]

WORKER = Incarnation("w", 1)
BLOCK = 4
BLOCKS = [number.to_bytes(8, "big") for number in range(1, 9)]
PROMPT = list(range(8 * BLOCK))
PARAMS = msgspec.structs.asdict(AffinityParams())
ASK = Ask(100, 1, 64, 10.0)
NAMESPACE = Namespace("m")
BEAT = Beat("w", 1, at=0.0)
PARTITIONS = 4


class OutageWorld:
    """One model. What must be there for a verb to do something is made by `prepare`."""

    def __init__(self, redis: Redis) -> None:
        self.model = new_model()
        self.redis, self.clock, self.metrics = redis, SystemClock(), Metrics()
        self.results = RedisResults(redis, self.metrics)
        self.leases = RedisLeases(redis, self.model)
        self.lives = RedisLives(redis, "decoder")
        self.index = PrefixIndex(redis, self.model)
        self.notes = RedisArtifactNotes(redis)
        self.files = RedisFileRecords(redis, self.clock)
        self.members = RedisPoolMembers(redis)
        self.follower = RedisFollower(redis, f"gw-{self.model}", self.metrics, self.clock, silence_s=0.5)
        self._names = itertools.count()

    def name(self) -> str:
        return f"{self.model}-{next(self._names)}"

    def head(self) -> Head:
        now = self.clock.now()
        reply_to = f"gw-{self.model}"
        return Head(self.name(), self.model, deadline_at=now + 60, created_at=now, reply_to=reply_to, streamed=True)

    async def claimed(self) -> Head:
        head = self.head()
        assert (await self.results.claim(head, BOB, 3)).state == "mine"
        return head

    async def prepare(self) -> dict[str, Verb]:
        """Verbs, each of which has something to write, or to find."""
        return {
            **await self._of_results(),
            **await self._of_leases_and_lives(),
            **await self._of_the_index(),
            **await self._of_notes_and_files(),
            "ping": lambda: ping(self.redis),
        }

    async def _of_results(self) -> dict[str, Verb]:
        results, fresh = self.results, self.head()
        told, left, ended, cancelled = [await self.claimed() for _ in range(4)]
        return {
            "results.claim": lambda: results.claim(fresh, ALICE, 3),
            "results.append": lambda: results.append([Outgoing(told, tokens(1, 2))]),
            "results.requeue": lambda: results.requeue(left, 1, BOB),
            "results.end": lambda: results.end(ended, finished(1)),
            "results.cancel": lambda: results.cancel(self.model, cancelled.request_id, "enough"),
            "results.wishes": lambda: results.wishes([told, cancelled]),
        }

    async def _of_leases_and_lives(self) -> dict[str, Verb]:
        leases, lives, model = self.leases, RedisLives(self.redis, self.name()), self.name()
        here, retiring, leaving = [await leases.join(self.name()) for _ in range(3)]
        await lives.of(self.model)
        return {
            "leases.join": lambda: leases.join(self.name()),
            "leases.tick": lambda: leases.tick(here, PARTITIONS, BEAT),
            "leases.retire": lambda: leases.retire(retiring, PARTITIONS, BEAT),
            "leases.leave": lambda: leases.leave(leaving),
            "leases.view": lambda: leases.view(PARTITIONS),
            "lives.of": lambda: lives.of(model),
            "lives.renew": lives.renew,
            "members.stay": lambda: self.members.stay("pool", "w"),
            "members.leave": lambda: self.members.leave("pool", "w"),
            "members.look": lambda: self.members.look(["pool"]),
        }

    async def _of_the_index(self) -> dict[str, Verb]:
        index, view = self.index, WorkerView("", total_blocks=100)
        me, over = Incarnation(self.name(), 1), Incarnation(self.name(), 1)
        for one in (me, over):
            assert await index.register(one, view) == "registered"
        given, new, chosen = self.name(), self.name(), WorkerView(str(me))
        await index.place(given, ASK, BLOCKS, [me], PARAMS, 60.0)
        return {
            "index.register": lambda: index.register(Incarnation(self.name(), 1), view),
            "index.apply": lambda: index.apply(me, 1, [CacheEvent("s", b"".join(BLOCKS))]),
            "index.reserve": lambda: index.reserve(new, ASK, BLOCKS, chosen.worker, None, 60.0),
            "index.release": lambda: index.release([given], [given]),
            "index.report": lambda: index.report(me, view),
            "index.look": lambda: index.look(BLOCKS, [me]),
            "index.retire": lambda: index.retire(over),
            "index.sweep": lambda: index.sweep(60.0),
            "index.clean": index.clean,
        }

    async def _of_notes_and_files(self) -> dict[str, Verb]:
        notes, files, now, there = self.notes, self.files, self.clock.now(), self.name()
        record = FileRecord(there, "me", "a.png", "vision", 1, now, now + 600)
        await notes.put(there, b"note")
        await notes.take_off(there, "maker")
        await files.add(record)
        return {
            "notes.get": lambda: notes.get([there]),
            "notes.put": lambda: notes.put(self.name(), b"note"),
            "notes.drop": lambda: notes.drop(there),
            "notes.take_off": lambda: notes.take_off(self.name(), "maker"),
            "notes.fly_on": lambda: notes.fly_on([there], "maker"),
            "notes.land": lambda: notes.land(there, "maker"),
            "notes.joined": lambda: notes.joined(there),
            "notes.mark_joined": lambda: notes.mark_joined(there),
            "files.add": lambda: files.add(FileRecord(self.name(), "me", "b.png", "vision", 1, now, now + 600)),
            "files.update": lambda: files.update(record),
            "files.get": lambda: files.get(there),
            "files.listing": lambda: files.listing("me", "", 10),
            "files.remove": lambda: files.remove(record),
        }


async def ask(verbs: dict[str, Verb]) -> dict[str, BaseException | None]:
    """All at once: what each raises."""
    came = await asyncio.gather(*(verb() for verb in verbs.values()), return_exceptions=True)
    return {
        name: answer if isinstance(answer, BaseException) else None for name, answer in zip(verbs, came, strict=True)
    }


class Tasks:
    """What runs for as long as its process: none of it may ever end."""

    def __init__(self, world: OutageWorld) -> None:
        self._world = world
        self.outbox = Outbox(world.results)
        self.released: list[str] = []
        self.reservations = Reservations(WORKER.worker, self._release, world.metrics)
        worker = WorkerView("", total_blocks=100)
        blocks = BlockMap(BLOCK, NAMESPACE)
        self.feed = Feed(world.index, world.model, WORKER, lambda: worker, blocks, world.metrics, world.clock)
        self.cancelled: set[str] = set()
        self._membership = Membership(world.members, "pool", "decoder")
        self._running: list[asyncio.Task[Any]] = []
        self._stored = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        works = {
            "outbox": self.outbox.run(),
            "reservations": self.reservations.run(),
            "feed": self.feed.run(),
            "signals": self._listen(),
            "keep alive": keep_alive(self._world.lives, self._membership),
        }
        await self._world.lives.of(self._world.model)
        await self._world.follower.start()
        self._running = [asyncio.create_task(work, name=name) for name, work in works.items()]
        try:
            yield
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running)
            await self._world.follower.close()

    def ended(self) -> dict[str, BaseException | None]:
        """Those that should not have: and with what."""
        return {task.get_name(): task.exception() for task in self._running if task.done()}

    async def account(self) -> Account:
        """Of a new request of this worker."""
        head = await self._world.claimed()
        return Account(head, 1, 0, lambda state: None)

    def placed(self, ticket: str) -> GenerateJob:
        placement = Placement(ticket, WORKER.worker, len(PROMPT))
        return GenerateJob(**{**_fields(job(ticket)), "placement": placement})

    def store_blocks(self, count: int) -> None:
        """The engine's cache holds so many more blocks of PROMPT."""
        first = self._stored
        self._stored += count
        parent = first - 1 if first else None
        held = PROMPT[first * BLOCK : self._stored * BLOCK]
        self.feed.heard(CacheBatch([Stored(range(first, self._stored), parent, held, BLOCK)]))

    async def view(self) -> WorkerView | None:
        """This worker, as decisions about PROMPT see it."""
        keys = extend(begin(NAMESPACE), PROMPT, BLOCK).keys
        views = (await self._world.index.look(keys, [WORKER])).views
        return views[0] if views else None

    async def _release(self, first_tokens: Sequence[str], ended: Sequence[str]) -> int:
        count = await self._world.index.release(first_tokens, ended)
        self.released += ended
        return count

    async def _listen(self) -> None:
        async with aclosing(RedisSignals(self._world.redis).listen(self._world.model)) as signals:
            async for signal in signals:
                self.cancelled.add(signal.request_id)


def _fields(one: GenerateJob) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
