"""What a pool needs of an engine: six verbs. Engines know nothing of Kafka, Redis or requests' lives."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

import msgspec

from schemas.errors import TriptychError
from schemas.events import FinishReason, TokenLogprob
from schemas.jobs import GenerateJob
from topics.steering.speed import Speed


class Delta(msgspec.Struct, frozen=True):
    """New output of one choice. `text` holds whole characters only, and nothing of special tokens."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] | None = None


class End(msgspec.Struct, frozen=True):
    """All choices are complete; nothing follows."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


Step = Delta | End


class Load(msgspec.Struct, frozen=True):
    """How full and how fast the engine is, for beats, metrics and steering. Cheap to ask; never blocks."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0  # 0..1: blocks that running sequences reference
    kv_unused: float = (
        1.0  # 0..1: blocks that hold nothing, neither referenced nor cached; rather too low than too high
    )
    tokens_per_s: float = 0.0
    speed: Speed = Speed()  # learned from its own steps


class CacheShape(msgspec.Struct, frozen=True):
    """The engine's KV cache; an engine without one names the size by which it wants to be judged."""

    total_blocks: int
    block_tokens: int


BlockHash = int | bytes


class Item(msgspec.Struct, frozen=True):
    """A media item that lies in a block, and maybe in others: `length` positions from `offset` on.

    The offset counts from the start of the block and is negative where the item began before it. The prompt has
    `token_id` at each of the positions.
    """

    offset: int
    length: int
    token_id: int
    digest: str


class Items(msgspec.Struct, frozen=True):
    """What lies in a block of a prompt with embeddings, as far as its content tells: one reading, or several of which
    only the block before it can tell the right one. The newest comes first; the items of a reading are in order."""

    readings: Sequence[Sequence[Item]]


class Stored(msgspec.Struct, frozen=True):
    """Consecutive blocks of one prompt are in the cache now. `parent`: the block before the first; None at its start.

    `extras`: for each block, or empty, what else went into its hash: strings (adapter, cache salt), pairs of a media
    digest and where that item begins, counted from the start of the block, and at most one Items. `keys`: from an
    engine that counts in our own block keys (topics.steering.blocks); it tells neither tokens nor their number.
    """

    hashes: Sequence[BlockHash]
    parent: BlockHash | None
    token_ids: Sequence[int]
    block_tokens: int
    extras: Sequence[Sequence[object] | None] = ()
    keys: Sequence[bytes] = ()


class Removed(msgspec.Struct, frozen=True):
    """These blocks have been evicted; one that had been stored twice is still there once."""

    hashes: Sequence[BlockHash]


class Cleared(msgspec.Struct, frozen=True):
    """The cache is empty."""


CacheEvent = Stored | Removed | Cleared


class CacheBatch(msgspec.Struct, frozen=True):
    """Changes of the cache, in order. `gap`: some before these are lost for good: what was known is worth nothing."""

    events: Sequence[CacheEvent]
    gap: bool = False


class Rows(msgspec.Struct, frozen=True):
    """Embeddings that take the place of the prompt's tokens at [offset, offset + length)."""

    offset: int
    length: int
    width: int
    dtype: str  # float32, float16 or bfloat16
    data: memoryview  # [length, width], row by row, little endian
    digest: str  # of the content, as in media.Embeds


class EmbedsShape(msgspec.Struct, frozen=True):
    """What rows an engine takes: how wide (0 = any), and in place of which token ids (empty = any)."""

    width: int = 0
    placeholders: frozenset[int] = frozenset()


class EngineDied(Exception):
    """The engine is gone; the job may go again once it is back."""


class Unrunnable(TriptychError):
    """This job can never run here (length, token id, grammar); the client must change it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__("invalid_request", message, param=param)


class Engine(Protocol):
    """Life: start, then any number of concurrent `run`, then close. After a death: restart, then as before."""

    name: str  # "vllm", "stub", ...; shown with every figure
    slots: int  # jobs it takes at once
    cache: CacheShape  # final after start
    embeds: EmbedsShape | None  # None: it takes no embeddings; final after start

    async def start(self, report: Callable[[str], None]) -> None:
        """Load and warm up; `report` gets a line per phase. Returns when a real request has run."""
        ...

    def run(self, job: GenerateJob, rows: Sequence[Rows] = ()) -> AsyncGenerator[Step]:
        """Run one job; `rows` are those of its embeds. Closing the generator aborts it inside the engine.

        Raises:
            Unrunnable: before the first step. EngineDied: at any time.
            ValueError: before the first step; the rows hold what no model can compute with.
        """
        ...

    def load(self) -> Load: ...

    def cache_events(self) -> AsyncGenerator[CacheBatch]:
        """What happens to the prefix cache, through all restarts, each of which is a Cleared.

        One reader. Reading slowly, or not at all, never holds up the engine. An engine that caches nothing ends it at
        once.
        """
        ...

    async def restart(self, report: Callable[[str], None]) -> None:
        """Replace a dead engine. Safe to call once per death; runs that were open have raised EngineDied."""
        ...

    async def close(self) -> None:
        """Abort what runs and free everything; harmless when repeated."""
        ...
