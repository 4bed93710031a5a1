"""vLLM's side of the wire played by a plain PUB and ROUTER socket: nothing of vLLM is imported."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from tests.waiting import until
from workers.engine import CacheBatch, Cleared, Item, Items, Removed, Stored
from workers.engines import vllm_events
from workers.engines.vllm_events import EventStream

END = (-1).to_bytes(8, "big", signed=True)


def event(number: int) -> dict[str, Any]:
    """Batch `number` holds one block whose hash is its number."""
    return {
        "type": "BlockStored",
        "block_hashes": [number],
        "parent_block_hash": None,
        "token_ids": [number] * 2,
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None],
        "group_idx": 0,
        "session_id": "anything newer",
    }


class Publisher:
    """As vLLM's: every batch goes out once and stays in a buffer, from which it is repeated on request."""

    def __init__(self, stream: EventStream, answers: bool = True, keeps: int = 10_000, cut: int = 10_000) -> None:
        self._context = zmq.asyncio.Context()
        self._events = self._context.socket(zmq.XPUB)  # a PUB that hears of subscriptions
        self._events.bind(stream.address)
        self._replay = self._context.socket(zmq.ROUTER)
        self._replay.bind(stream.replay_address)
        self._buffer: list[tuple[int, bytes]] = []
        self._answers, self._keeps, self._cut = answers, keeps, cut
        self.asked: list[int] = []

    def keep(self, number: int, *events: dict[str, Any]) -> None:
        """A batch that nobody hears."""
        self._buffer.append((number, msgspec.msgpack.encode([0.0, events or [event(number)], 0])))

    async def publish(self, number: int, *events: dict[str, Any]) -> None:
        self.keep(number, *events)
        await self._events.send_multipart([b"", number.to_bytes(8, "big"), self._buffer[-1][1]])

    async def subscribed(self) -> None:
        await asyncio.wait_for(self._events.recv(), 10)

    async def serve(self) -> None:
        while True:
            who, _, start = await self._replay.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            if not self._answers:
                continue
            held = [one for one in self._buffer[-self._keeps :] if one[0] >= self.asked[-1]]
            for number, payload in held[: self._cut]:
                await self._replay.send_multipart([who, b"", b"", number.to_bytes(8, "big"), payload])
            await self._replay.send_multipart([who, b"", b"", END, b""])

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
async def stream() -> AsyncIterator[EventStream]:
    made = EventStream(lambda digest: None)
    yield made
    made.close()


class Reading:
    """Collects what the stream says while inside, beside a publisher."""

    def __init__(self, stream: EventStream, publisher: Publisher) -> None:
        self._stream, self.publisher = stream, publisher
        self.batches: list[CacheBatch] = []

    async def __aenter__(self) -> "Reading":
        self.tasks = [asyncio.create_task(self.publisher.serve()), asyncio.create_task(self._read())]
        await self.publisher.subscribed()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        self.publisher.close()

    async def _read(self) -> None:
        async with aclosing(self._stream.batches()) as batches:
            async for batch in batches:
                self.batches.append(batch)

    async def until(self, count: int) -> list[CacheBatch]:
        await until(lambda: len(self.batches) >= count)
        return self.batches


async def test_items_stand_in_for_the_digest_of_rows_where_they_are_known() -> None:
    items = Items([[Item(0, 4, 7, "cat")]])
    stream = EventStream(lambda digest: items if digest == b"rows" else None)
    more = {"block_hashes": [1, 2], "token_ids": [0] * 4, "extra_keys": [["salt", b"rows"], [b"generated"]]}
    publisher = Publisher(stream)
    publisher.keep(0, event(0) | more)
    async with Reading(stream, publisher) as reading:
        (batch,) = await reading.until(1)
        assert batch.events == [Stored([1, 2], None, [0] * 4, 2, [["salt", items], [b"generated"]])]
    stream.close()


def hashes(batches: list[CacheBatch]) -> list[object]:
    return [one for batch in batches for each in batch.events if isinstance(each, Stored) for one in each.hashes]


async def test_what_was_published_before_we_subscribed_is_asked_for(stream: EventStream) -> None:
    publisher = Publisher(stream)
    publisher.keep(0)
    publisher.keep(1)
    async with Reading(stream, publisher) as reading:
        batches = await reading.until(2)
        assert batches[0] == CacheBatch([Stored([0], None, [0, 0], 2, [None])])
        await publisher.publish(2)
        assert hashes(await reading.until(3)) == [0, 1, 2]
        assert not any(batch.gap for batch in batches)


async def test_a_hole_is_filled_before_what_comes_after_it_and_repetitions_are_dropped(stream: EventStream) -> None:
    async with Reading(stream, Publisher(stream)) as reading:
        await reading.publisher.publish(0)
        await reading.until(1)
        for number in (1, 2, 3):
            reading.publisher.keep(number)
        await reading.publisher.publish(4)
        await reading.publisher.publish(4)
        await reading.publisher.publish(5)
        assert hashes(await reading.until(6)) == [0, 1, 2, 3, 4, 5]
        assert not any(batch.gap for batch in reading.batches)


async def test_an_answer_that_is_cut_short_is_asked_on(stream: EventStream) -> None:
    publisher = Publisher(stream, cut=2)
    for number in range(7):
        publisher.keep(number)
    async with Reading(stream, publisher) as reading:
        assert hashes(await reading.until(7)) == list(range(7))
        assert publisher.asked[:4] == [0, 2, 4, 6]


async def test_the_last_batch_lost_is_noticed_in_the_quiet_after_it(stream: EventStream) -> None:
    async with Reading(stream, Publisher(stream)) as reading:
        await reading.publisher.publish(0)
        await reading.until(1)
        reading.publisher.keep(1)
        assert hashes(await reading.until(2)) == [0, 1]


async def test_a_hole_that_replay_cannot_fill_is_marked_once(stream: EventStream) -> None:
    publisher = Publisher(stream, keeps=2)
    async with Reading(stream, publisher) as reading:
        await publisher.publish(0)
        await reading.until(1)
        for number in (1, 2, 3):
            publisher.keep(number)
        await publisher.publish(4)
        await reading.until(3)
        await publisher.publish(5)
        batches = await reading.until(4)
        assert hashes(batches) == [0, 3, 4, 5]
        assert [batch.gap for batch in batches] == [False, True, False, False]


async def test_blocks_with_content_are_counted_in_all_groups_and_every_copy(stream: EventStream) -> None:
    def removed(*block_hashes: int) -> dict[str, Any]:
        return {"type": "BlockRemoved", "block_hashes": block_hashes, "medium": "GPU", "group_idx": 0}

    three = {"block_hashes": [7, 8, 9], "token_ids": [0] * 6, "extra_keys": None}
    async with Reading(stream, Publisher(stream)) as reading:
        await reading.publisher.publish(0, event(0) | three, event(7), event(1) | {"group_idx": 1})
        await reading.until(1)
        assert stream.held_blocks == 5
        await reading.publisher.publish(1, removed(7, 8), event(2) | {"medium": "CPU"})
        await reading.until(2)
        assert stream.held_blocks == 3
        await reading.publisher.publish(2, {"type": "AllBlocksCleared"}, event(3))
        await reading.until(3)
        assert stream.held_blocks == 1


async def test_after_a_hole_nobody_knows_how_many_blocks_have_content_until_all_are_cleared(
    stream: EventStream,
) -> None:
    async with Reading(stream, Publisher(stream, keeps=1)) as reading:
        await reading.publisher.publish(0)
        await reading.until(1)
        await reading.publisher.publish(2)
        await reading.until(2)
        assert stream.held_blocks is None
        await reading.publisher.publish(3)
        await reading.until(3)
        assert stream.held_blocks is None
        await reading.publisher.publish(4, {"type": "AllBlocksCleared"}, event(4))
        await reading.until(4)
        assert stream.held_blocks == 1


async def test_an_engine_that_does_not_answer_is_not_waited_for_for_ever(
    stream: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_events, "REPLAY_LIMIT_S", 0.05)
    async with Reading(stream, Publisher(stream, answers=False)) as reading:
        await reading.publisher.publish(3)
        await reading.publisher.publish(4)
        batches = await reading.until(2)
        assert hashes(batches) == [3, 4]
        assert [batch.gap for batch in batches] == [True, False]


async def test_a_batch_that_cannot_be_read_is_a_gap(stream: EventStream) -> None:
    async with Reading(stream, Publisher(stream)) as reading:
        await reading.publisher.publish(0, {"type": "SomethingNew"})
        await reading.publisher.publish(1)
        batches = await reading.until(2)
        assert batches[0] == CacheBatch((), gap=True)
        assert hashes(batches) == [1]


async def test_removals_and_clears_come_through_and_other_tiers_and_layers_do_not(stream: EventStream) -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [7, b"raw"], "medium": "GPU", "group_idx": 0}
    others = [event(1) | {"medium": "CPU"}, event(2) | {"group_idx": 1}, removed | {"medium": "STORAGE"}]
    async with Reading(stream, Publisher(stream)) as reading:
        await reading.publisher.publish(0, *others, removed, {"type": "AllBlocksCleared"})
        assert await reading.until(1) == [CacheBatch([Removed([7, b"raw"]), Cleared()])]


async def test_a_closed_stream_ends_and_leaves_no_files(stream: EventStream) -> None:
    publisher = Publisher(stream)
    async with Reading(stream, publisher) as reading:
        await publisher.publish(0)
        await reading.until(1)
        stream.close()
        await asyncio.wait_for(reading.tasks[1], 2.0)
        assert not Path(stream.address.removeprefix("ipc://")).parent.exists()
