"""vLLM's cache events: published by its core process over ZMQ, numbered, and asked for again where some are missing."""

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
import zmq
import zmq.asyncio

from workers.engine import BlockHash, CacheBatch, CacheEvent, Cleared, Items, Removed, Stored

log = logging.getLogger(__name__)

# Nothing for so long: look whether it was the last batch that got lost, and whether the engine has been closed.
QUIET_MS = 250
# The publisher answers between two batches, ten times a second when idle; a core that computes may take longer.
REPLAY_LIMIT_S = 5.0
_END_OF_REPLAY = -1
# Blocks on other tiers, and of other layers than the first group's, are no hit for a prompt.
_MEDIA = (None, "GPU")
_GROUPS = (None, 0)


class _BlockStored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    medium: str | None = None
    extra_keys: list[list[object] | None] | None = None
    group_idx: int | None = None


class _BlockRemoved(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None


class _AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[_BlockStored | _BlockRemoved | _AllBlocksCleared]


_Numbered = tuple[int, bytes]
Recall = Callable[[bytes], Items | None]


class EventStream:
    """One life of an engine. Make it before the engine, which binds its two addresses.

    `recall` says what lies in a block whose rows have that digest, None when it is none that it knows.
    """

    def __init__(self, recall: Recall) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="triptych-kv-")
        self.address = f"ipc://{self._folder.name}/events"
        self.replay_address = f"ipc://{self._folder.name}/replay"
        self._decoder = msgspec.msgpack.Decoder(_Batch)
        self._recall = recall
        self._next = 0
        self._closed = False
        self.held_blocks: int | None = 0  # that have content to be matched; None since some events were lost

    def close(self) -> None:
        """The engine is gone: `batches` ends soon. Harmless when repeated."""
        self._closed = True
        self._folder.cleanup()

    async def batches(self) -> AsyncGenerator[CacheBatch]:
        """All of them from the first on, in order, until closed; a hole that replay cannot fill is marked."""
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as events:
            events.setsockopt(zmq.LINGER, 0)
            events.setsockopt(zmq.RCVHWM, 0)  # what we do not take in time waits here, not in the engine
            events.subscribe(b"")
            events.connect(self.address)
            quiet_is_news = True  # we may have subscribed after the first ones
            while not self._closed:
                batches: list[CacheBatch] = []
                if await events.poll(QUIET_MS):
                    _, number, payload = await events.recv_multipart()
                    batches = await self._in_order(context, _number(number), payload)
                    quiet_is_news = True
                elif quiet_is_news:
                    batches = await self._missed(context)
                    quiet_is_news = bool(batches)
                for batch in batches:
                    yield batch

    async def _in_order(self, context: zmq.asyncio.Context, number: int, payload: bytes) -> list[CacheBatch]:
        """What has been missed before this one, then this one, unless we had it."""
        batches = await self._missed(context, number)
        if number >= self._next:
            batches.append(self._take(number, payload))
        return batches

    async def _missed(self, context: zmq.asyncio.Context, before: int | None = None) -> list[CacheBatch]:
        """Everything up to `before`, or to the last, that the engine still has."""
        batches: list[CacheBatch] = []
        while before is None or self._next < before:
            answer = await self._ask_again(context)
            if not answer:
                break
            for number, payload in answer:
                if number != self._next and number != answer[0][0]:
                    break  # the answer has lost some on its way: ask for the rest
                batches.append(self._take(number, payload))
        return batches

    async def _ask_again(self, context: zmq.asyncio.Context) -> list[_Numbered]:
        answer: list[_Numbered] = []
        with context.socket(zmq.DEALER) as question:
            question.setsockopt(zmq.LINGER, 0)
            question.setsockopt(zmq.RCVHWM, 0)
            question.connect(self.replay_address)
            try:
                async with asyncio.timeout(REPLAY_LIMIT_S):
                    await question.send_multipart([b"", self._next.to_bytes(8, "big")])
                    while not self._closed:
                        if not await question.poll(QUIET_MS):
                            continue
                        *_, number, payload = await question.recv_multipart()
                        if _number(number) == _END_OF_REPLAY:
                            break
                        answer.append((_number(number), payload))
            except TimeoutError:
                log.warning("the engine does not repeat its cache events within %.0f s", REPLAY_LIMIT_S)
        return answer

    def _take(self, number: int, payload: bytes) -> CacheBatch:
        gap = number > self._next
        self._next = number + 1
        if gap:
            self.held_blocks = None
        try:
            batch = self._decoder.decode(payload)
        except msgspec.DecodeError as error:
            log.error("cache events that cannot be read: %s", error)
            self.held_blocks = None
            return CacheBatch((), gap=True)
        self._count(batch)
        return CacheBatch(_translated(batch, self._recall), gap)

    def _count(self, batch: _Batch) -> None:
        """Blocks of the engine's own memory, of all groups and namespaces: each takes room, steered by or not."""
        for event in batch.events:
            match event:
                case _AllBlocksCleared():
                    self.held_blocks = 0
                case _ if self.held_blocks is None or event.medium not in _MEDIA:
                    continue
                case _BlockStored():
                    self.held_blocks += len(event.block_hashes)
                case _BlockRemoved():
                    self.held_blocks -= len(event.block_hashes)


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _translated(batch: _Batch, recall: Recall) -> list[CacheEvent]:
    events: list[CacheEvent] = []
    for event in batch.events:
        match event:
            case _AllBlocksCleared():
                events.append(Cleared())
            case _ if event.medium not in _MEDIA or event.group_idx not in _GROUPS:
                continue
            case _BlockStored():
                parent = event.parent_block_hash
                extras = [_known(block, recall) for block in event.extra_keys or ()]
                events.append(Stored(event.block_hashes, parent, event.token_ids, event.block_size, extras))
            case _BlockRemoved():
                events.append(Removed(event.block_hashes))
    return events


def _known(extras: list[object] | None, recall: Recall) -> Sequence[object] | None:
    """What went into a block's hash, with items in place of the digest of its rows, where they are known."""
    if extras is None:
        return None
    return [(recall(one) or one) if isinstance(one, bytes) else one for one in extras]
