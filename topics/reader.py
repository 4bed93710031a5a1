"""What the partition-owning consumer needs of a broker: to read given partitions from given places, and to commit."""

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from topics.records import Record


class Polled(msgspec.Struct, frozen=True):
    records: list[Record]  # ascending offsets within each partition
    # Where reading goes on, for partitions of which nothing came: past transaction markers and compacted holes.
    positions: dict[int, int] = {}


class PartitionReader(Protocol):
    """Reads one topic. Every verb but close raises Unavailable when the broker gives no answer in time."""

    async def start(self) -> None: ...

    def partitions(self) -> int:
        """How many the topic has; follows growth within seconds."""
        ...

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, int]:
        """Read exactly these partitions from here on, each from its position; None: from the last commit, or the start
        of the log. Returns where each begins."""
        ...

    async def poll(self, partitions: Collection[int], wait_s: float) -> Polled:
        """What has come for these, of those followed; waits that long for a first record.

        Never raises for what a record holds. Whatever it returns it does not return again.
        """
        ...

    async def commit(self, offsets: Mapping[int, int]) -> None: ...

    async def close(self) -> None: ...
