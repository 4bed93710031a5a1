"""Records that have been fetched and not handed out yet. Pure."""

from collections import deque
from collections.abc import Iterable

from topics.records import Record


class Backlog:
    """Hands out the oldest record first, over all partitions, and each partition in its own order.

    A broker delivers one partition's chunk after the other; served like that, a full partition would make the others of
    its worker wait for a whole chunk.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Record]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Ascending offsets within each partition."""
        for record in records:
            self._waiting.setdefault(record.at.partition, deque()).append(record)

    def oldest(self) -> Record | None:
        """The next one to hand out; stays until `take`."""
        heads = (records[0] for records in self._waiting.values())
        return min(heads, key=lambda record: (record.timestamp_ms, record.at.partition), default=None)

    def take(self, record: Record) -> None:
        """Remove the first record of its partition, which `record` must be."""
        records = self._waiting[record.at.partition]
        assert records[0] is record
        records.popleft()
        if not records:
            del self._waiting[record.at.partition]

    def drop(self, partition: int) -> None:
        self._waiting.pop(partition, None)

    def has(self, partition: int) -> bool:
        return partition in self._waiting
