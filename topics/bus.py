"""The interfaces of the bus. Delivery promise: at least once, in offset order of handing out, per partition."""

from typing import Protocol

import msgspec

from infra.ports import Incarnation
from schemas.jobs import GenerateJob, Message
from topics.headers import Headers


class Position(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


class Delivery(msgspec.Struct, frozen=True):
    """One job from a partition this process owns.

    It must be given back to `done`, or its partition stays where it is until the next owner reads it again. Only a
    worker that drains may leave one open.
    """

    at: Position
    job: GenerateJob
    headers: Headers = []  # those that whatever comes of it is to bear, too


class Producer(Protocol):
    """Writes to topics. A message over the size limit goes to the object store and its key onto the topic."""

    async def start(self) -> None: ...

    async def send(
        self,
        topic: str,
        message: Message | msgspec.Struct,
        *,
        partition: int | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> Position:
        """Returns when the broker has acknowledged it.

        Raises:
            Unavailable: the broker, or the store of a large message, does not take it in time; it may have it anyway.
            Missing: there is no such topic or partition. Refused: too large, or not allowed.
        """
        ...

    async def close(self) -> None: ...


class PartitionConsumer(Protocol):
    """Reads the partitions this worker holds leases on. The commit is the contiguous finished prefix of each."""

    @property
    def me(self) -> Incarnation:
        """This life of the worker, for its claims. Known once started; RuntimeError before."""
        ...

    @property
    def owned(self) -> frozenset[int]:
        """The partitions whose leases are held at this moment."""
        ...

    async def start(self) -> None:
        """Join the pool and begin to renew leases in the background. Call when the engine is ready, not before."""
        ...

    async def watch(self) -> None:
        """For as long as leases are renewed and commits made; put it into the task group of whoever takes.

        Raises:
            FencedOff: a later life of this worker has begun. Anything else: a bug has ended that work.
        """
        ...

    async def take(self, most: int) -> list[Delivery]:
        """At most `most` jobs; waits a short while for the first one, then returns what there is (maybe nothing).

        Not calling it for long costs nothing: leases are renewed elsewhere. Undecodable records go to the dead-letter
        topic here and are never returned. One caller at a time.

        Raises:
            FencedOff: a later life of this worker has begun.
        """
        ...

    def done(self, delivery: Delivery) -> None:
        """This job has its terminal event (or belongs to someone else now); its offset may be committed.

        Harmless for a delivery of a partition that has been lost since.
        """
        ...

    async def set_aside(self, delivery: Delivery, error: BaseException) -> None:
        """Keep it as a dead letter: it could be neither run nor ended. Then as `done`."""
        ...

    async def retire(self) -> None:
        """Hand the partitions back at once and take nothing more; jobs in flight go on."""
        ...

    async def close(self) -> None:
        """Commit what is done, leave the pool."""
        ...


class FencedOff(Exception):
    """A later life of this worker has begun; this process must stop."""
