"""The interfaces of this house: what others may ask of Redis and the object store. Twins in memory.py keep to them."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Literal, Protocol

import msgspec

from schemas.events import Event, Terminal
from schemas.jobs import Head
from schemas.refs import BlobRef
from schemas.signals import Beat, Signal


class Incarnation(msgspec.Struct, frozen=True):
    """One life of a worker: its name, and a number higher than that of any life before. It fences those of its name."""

    worker: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.worker}:{self.epoch}"


class Blobs(Protocol):
    """The object store. Keys are content addresses, so writing twice is harmless and no conditional put is needed."""

    async def put(self, ref: BlobRef, data: bytes) -> None:
        """The reference must have been made of these very bytes (hashing.py): they are not hashed again."""
        ...

    async def put_stream(self, folder: str, chunks: AsyncIterator[bytes], media_type: str) -> BlobRef:
        """Store what comes under `<folder>/<sha256 of it>`, in bounded memory; not if `hold` would leave it as is.

        What the iterator raises is raised, and then nothing of the stream stays in the store.
        """
        ...

    async def get(self, ref: BlobRef) -> bytes:
        """Raises Missing when absent and Corrupt when size or digest differ from the reference."""
        ...

    async def read(self, key: str, most_bytes: int) -> bytes:
        """An object whose digest the reader cannot know, an artifact for one.

        Raises Missing when absent and Corrupt when it has more than `most_bytes`.
        """
        ...

    def stream(self, key: str) -> AsyncGenerator[bytes]:
        """The object piece by piece, unverified; close it if it is left early. Raises Missing when absent."""
        ...

    async def exists(self, key: str) -> bool: ...

    async def hold(self, key: str) -> bool:
        """Whether it is there. If so it stays for another half of media_ttl_s at least (retention.py)."""
        ...

    async def delete(self, key: str) -> None:
        """Harmless when absent."""
        ...

    async def presign_get(self, key: str, expires_s: int) -> str: ...

    async def presign_put(self, key: str, expires_s: int, size_bytes: int | None = None) -> str:
        """With a size, the store refuses a body of any other."""
        ...

    async def ping(self) -> None:
        """Raises when the bucket cannot be reached."""
        ...


ClaimState = Literal["mine", "busy", "done", "cancelled", "exhausted"]


class Claim(msgspec.Struct, frozen=True):
    """The answer to "may I run this request?".

    mine: yes, as `attempt`; events continue at `last_seq + 1`.  busy: a living worker runs it (maybe the asking one
    itself, which read the job twice); ask again.  done: it has its terminal event.  cancelled: somebody cancelled it
    (or the request that it is a part of) before it ran: emit Cancelled as `attempt`.  exhausted: too many attempts:
    emit Failed as `attempt`.
    """

    state: ClaimState
    attempt: int = 0
    last_seq: int = 0
    emitted: bool = False  # an earlier attempt emitted tokens
    made: int = 0  # so many Made events of earlier attempts are stored: the client has them


AppendState = Literal["stored", "fenced", "ended", "cancelled"]


class Outgoing(msgspec.Struct, frozen=True):
    """Events of one request on their way out: at least one, seqs contiguous, one attempt, nothing after a terminal."""

    head: Head
    events: list[Event]


Wish = Literal["wanted", "ended", "cancelled"]


class Results(Protocol):
    """The result path, worker's side.

    Every verb raises Unavailable when the store gives no answer in time; to call it again with the same arguments
    is then right and harmless, whether or not the first call had been carried out.
    """

    async def claim(self, head: Head, by: Incarnation, max_attempts: int) -> Claim: ...

    async def requeue(self, head: Head, attempt: int, by: Incarnation) -> None:
        """Give up this claim: the next one, by anybody, succeeds. Nothing happens if a later attempt owns it."""
        ...

    async def append(self, outgoing: Sequence[Outgoing]) -> list[AppendState]:
        """Store and publish, in one round trip for all; one answer per item, in order. All are of one model.

        stored: also when the very same events had been stored before (a retried call).
        fenced: a later attempt owns the request now, or a part of what came before is lost; nothing stored.
        (A store that has lost everything of the request adopts it: whoever runs it goes on.)
        ended: it has a terminal event; nothing stored.  cancelled: stored, and somebody wants it to stop.
        """
        ...

    async def wishes(self, heads: Sequence[Head]) -> list[Wish]:
        """Whether these requests still want to be worked on, in one round trip for all; heads of any models.

        ended: it has its terminal event.  cancelled: somebody wants it, or what it is a part of, to stop.
        """
        ...

    async def end(self, head: Head, event: Terminal) -> bool:
        """Gateway's last word (deadline, nobody left): end the request whatever attempt runs. False if it had ended.

        The event's attempt and seq are filled in where it is stored.
        """
        ...

    async def cancel(self, model: str, request_id: str, reason: str) -> None:
        """Mark it cancelled and signal the workers."""
        ...


class Subscription(Protocol):
    """One followed request: events in order, none missing, none twice, ending after the terminal one."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def __anext__(self) -> Event:
        """The next event.

        Raises:
            StopAsyncIteration: the terminal event has been delivered.
            TriptychError: code replay_lost, when events were trimmed before they could be read.
        """
        ...

    def ready(self) -> list[Event]:
        """What else has arrived already, without waiting; lets a slow reader send several in one write."""
        ...

    def close(self) -> None: ...


class Follower(Protocol):
    """The result path, gateway's side: one multiplexed subscription for all requests of this gateway."""

    async def start(self) -> None: ...

    def follow(self, model: str, request_id: str, after_seq: int = 0, *, begun: bool = False) -> Subscription:
        """Call before the job is produced, so that nothing can be missed; or say that it has `begun`: what it has told
        by now is looked up then.
        """
        ...

    async def close(self) -> None: ...


class Signals(Protocol):
    """Cancels and the like, for the workers of one model; lossy."""

    def listen(self, model: str) -> AsyncIterator[Signal]:
        """Never ends by itself; reconnects by itself."""
        ...


class Tick(msgspec.Struct, frozen=True):
    """What one renewal told: the partitions held now, or that a later life of this worker has begun."""

    owned: frozenset[int]
    valid_for_s: float  # without another tick, consider the leases lost after this
    fenced: bool = False
    taken: frozenset[int] = frozenset()  # those of `owned` that were not mine a moment ago: begin from the commit


class PoolView(msgspec.Struct, frozen=True):
    """Who serves a model right now: partition -> owner, and every live worker's last beat."""

    owners: dict[int, Incarnation]
    beats: dict[str, Beat]


class Leases(Protocol):
    """Ownership of partitions: a fair share for every live worker, by leases (DESIGN.md section 4).

    Every verb raises Unavailable when the store of leases does not answer in time.
    """

    async def join(self, worker: str) -> Incarnation:
        """Begin a new life under this name; the earlier one is fenced, its leases come over with the first tick."""
        ...

    async def tick(self, me: Incarnation, partitions: int, beat: Beat) -> Tick:
        """Renew, take free leases up to the fair share, give the surplus back. One round trip."""
        ...

    async def retire(self, me: Incarnation, partitions: int, beat: Beat) -> None:
        """Give all leases back and stop counting for the share, but stay alive for claims: called while draining.

        Ticks that follow keep this life alive and own nothing.
        """
        ...

    async def leave(self, me: Incarnation) -> None:
        """End this life: its leases are free at once. Harmless when it has been fenced."""
        ...

    async def view(self, partitions: int) -> PoolView:
        """Owners of leased partitions, and beats of workers that count for the share (retired ones do not)."""
        ...


class Outlived(Exception):
    """A later life of this worker has begun; this process must stop."""


class Lives(Protocol):
    """The life of one worker that holds no partitions, in every model it works for: what claims go by.

    Its name must be unique over all pools of a model. Every verb raises Unavailable when the store does not answer.
    """

    async def of(self, model: str) -> Incarnation:
        """This worker, for claims of requests of that model; its life there begins when it is first asked for."""
        ...

    async def renew(self) -> None:
        """Live on, everywhere; wanted every keys.TICK_S.

        Raises:
            Outlived: a process of the same name has started since.
        """
        ...

    async def end(self) -> None:
        """Whatever is still claimed is free at once. Harmless when this life has been outlived."""
        ...
