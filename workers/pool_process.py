"""One worker process of a stateless pool (encoders, decoders): what all of them have, started and stopped in order."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from infra import redis_client
from infra.alive import RedisLives, keep_alive
from infra.blobs import S3Blobs
from infra.clock import SystemClock
from infra.faults import PortFault
from infra.health_server import HealthServer
from infra.lifecycle import Life, signals
from infra.metrics import Metrics
from infra.pool_members import Membership, RedisPoolMembers
from infra.ports import Outlived
from infra.results import RedisResults
from infra.settings import Settings
from infra.signals import RedisSignals
from topics.brake import Bound
from topics.dead_letters import DeadLetters
from topics.kafka import KafkaProducer
from topics.pools import Pool

log = logging.getLogger(__name__)

EXIT_OK, EXIT_FENCED = 0, 3
# Between telling jobs to stop and closing: what they still have to say.
LAST_WORDS_S = 5.0


class Surroundings:
    """What a stateless worker has to do with. Built before anything is reached; PoolProcess opens and closes it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.metrics = Metrics()
        self.redis = redis_client.connect(settings.redis)
        self.results = RedisResults(self.redis, self.metrics)
        self.lives = RedisLives(self.redis, settings.worker_name)
        self.members = RedisPoolMembers(self.redis)
        self.blobs = S3Blobs(settings)
        self.producer = KafkaProducer(settings.kafka, self.blobs)
        self.letters = DeadLetters(self.producer, self.blobs, self.metrics, self.clock, Bound.of(settings))


class Trade(Protocol):
    """What one kind of stateless worker does. Its parts are built of the surroundings, by its constructor."""

    models: list[str]  # whose requests it works on; requests go by the LLM's id
    topic: str  # and the name of the pool

    @property
    def pool(self) -> Pool:
        """Where its jobs come from."""
        ...

    async def load(self, report: Callable[[str], None]) -> None:
        """Make the engines ready; `report` gets a line per phase, from any thread. Surroundings are open by then."""
        ...

    def cancel(self, request_id: str, reason: str) -> None:
        """Stop that request, or its parts, if it is under way here."""
        ...

    async def beside(self) -> None:
        """What runs as long as jobs do; cancelled at the end."""
        ...

    def drain(self) -> None:
        """The pool has been left: begin nothing more."""
        ...

    def cut_short(self) -> None:
        """The drain's time is over: stop what can go again elsewhere."""
        ...

    async def close(self) -> None:
        """Free the engines. Called whatever `load` came to."""
        ...


class PoolProcess:
    def __init__(self, surroundings: Surroundings, trade: Trade) -> None:
        self._around = surroundings
        self._trade = trade
        self._membership = Membership(surroundings.members, trade.topic, surroundings.settings.worker_name)
        self._phase = "starting"

    async def run(self, life: Life) -> int:
        """Its whole life; returns the exit code.

        Raises:
            Unavailable: broker, Redis or object store cannot be reached at start.
            Missing: the topic does not exist.
        """
        around, settings = self._around, self._around.settings
        async with AsyncExitStack() as parts:
            health = HealthServer(settings.host, settings.metrics_port, around.metrics, self._unready)
            parts.push_async_callback(health.close)
            await health.start()
            parts.push_async_callback(around.redis.aclose)
            parts.push_async_callback(around.blobs.close)
            await around.blobs.start()
            parts.push_async_callback(around.producer.close)
            await around.producer.start()
            parts.push_async_callback(self._trade.close)
            await self._trade.load(self._report)
            return await self._serve(life)

    async def _serve(self, life: Life) -> int:
        exit_code = EXIT_OK
        pool = self._trade.pool
        try:
            # Without its broker it would go on trying to join for a minute.
            if not await life.unless_stopped(pool.start()):
                return exit_code
            self._phase = ""
            log.info("%s is at work", self._around.settings.worker_name)
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(keep_alive(self._around.lives, self._membership), name="keep alive"),
                    group.create_task(self._trade.beside(), name="beside"),
                    group.create_task(pool.watch(), name="watch"),
                    *(group.create_task(self._listen(model), name="listen") for model in self._trade.models),
                ]
                await life.stopped()
                await self._drain(pool, life)
                for task in beside:
                    task.cancel()
        except* Outlived:
            log.error("this process stops: a later life of %s has begun", self._around.settings.worker_name)
            exit_code = EXIT_FENCED
        finally:
            await pool.close()
            await self._end_life()
        return exit_code

    async def _listen(self, model: str) -> None:
        async for signal in RedisSignals(self._around.redis).listen(model):
            self._trade.cancel(signal.request_id, signal.reason)

    async def _drain(self, pool: Pool, life: Life) -> None:
        self._phase = "draining"
        await pool.retire()
        self._trade.drain()
        if not await pool.drained(life.deadline().left_s()):
            log.warning("the drain's time is over: leaving the rest to others")
            self._trade.cut_short()
            await pool.drained(LAST_WORDS_S)

    async def _end_life(self) -> None:
        try:
            await self._membership.leave()
            await self._around.lives.end()
        except PortFault as error:
            log.warning("others will wait for this worker's last beat to fade: %s", error)

    def _report(self, phase: str) -> None:
        self._phase = phase
        log.info("%s", phase)

    def _unready(self) -> list[str]:
        return [self._phase] if self._phase else []


async def serve(surroundings: Surroundings, trade: Trade) -> int:
    """Run one stateless worker until it is told to stop; returns the exit code. Raises as PoolProcess.run."""
    life = Life(surroundings.settings.drain_s)
    async with signals(life):
        return await PoolProcess(surroundings, trade).run(life)
