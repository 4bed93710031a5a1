"""StreamReader against a store that fails: what was wanted stays wanted."""

import asyncio
from collections.abc import Callable
from typing import Any

from infra.clock import ManualClock
from infra.metrics import Metrics
from infra.stream_reader import REQUESTS_PER_ROUND, StreamReader
from infra.subscription import Followed
from schemas import codec
from schemas.events import EventBatch, Finished, Usage
from tests.waiting import until


class FlakyRedis:
    """Refuses the first reads; then every stream holds one entry, the terminal one."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.rounds: list[int] = []

    def pipeline(self, transaction: bool) -> "FlakyRedis":
        self._asked = 0
        return self

    async def __aenter__(self) -> "FlakyRedis":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def xrange(self, name: str, min: str, count: int) -> None:
        self._asked += 1

    async def execute(self) -> list[Any]:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionResetError("cut")
        self.rounds.append(self._asked)
        entry = (b"1-0", {b"b": codec.encode(EventBatch("r", [Finished(1, 1, Usage(1, 1))]))})
        return [[entry] for _ in range(self._asked)]


def followed(reader: StreamReader) -> Followed:
    return Followed("m", "r", 0, on_room=lambda _: None, on_close=reader.forget)


async def run_until(reader: StreamReader, done: Callable[[], bool]) -> None:
    task = asyncio.create_task(reader.run())
    try:
        await until(done)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_streams_that_could_not_be_read_are_read_again() -> None:
    redis = FlakyRedis(refusals=2)
    reader = StreamReader(redis, Metrics(), ManualClock())  # type: ignore[arg-type]  # the four calls that it needs
    one = followed(reader)
    reader.want(one, "reconnect")
    await run_until(reader, lambda: one.ended)
    assert redis.refusals == 0


async def test_rounds_are_bounded_and_urgent_ones_come_before_the_silent() -> None:
    redis = FlakyRedis(refusals=0)
    reader = StreamReader(redis, Metrics(), ManualClock())  # type: ignore[arg-type]  # the four calls that it needs
    silent = [followed(reader) for _ in range(REQUESTS_PER_ROUND + 1)]
    urgent = followed(reader)
    for one in silent:
        reader.want(one, "silence")
    reader.want(urgent, "reconnect")
    await run_until(reader, lambda: all(one.ended for one in silent))
    assert redis.rounds == [REQUESTS_PER_ROUND, 2]
    assert urgent.ended


async def test_closed_subscription_is_not_read() -> None:
    redis = FlakyRedis(refusals=0)
    reader = StreamReader(redis, Metrics(), ManualClock())  # type: ignore[arg-type]  # the four calls that it needs
    closed, other = followed(reader), followed(reader)
    reader.want(closed, "reconnect")
    closed.close()
    reader.want(other, "reconnect")
    await run_until(reader, lambda: other.ended)
    assert redis.rounds == [1]
