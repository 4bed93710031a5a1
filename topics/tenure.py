"""One partition while this worker holds it: fetched, handed out, finished, committed. Pure."""

from collections import deque
from collections.abc import Iterable

from topics.bus import Delivery
from topics.records import Record
from topics.watermark import Watermark


class Tenure:
    """Starts without a position; `begin` sets it once the commit of the last owner is known.

    A partition that is lost and comes back gets a new tenure, so that a delivery of the old one cannot move the new
    one's commit: somebody else may have had it in between, and be running that very job.
    """

    def __init__(self) -> None:
        self._marks: Watermark | None = None
        self._waiting: deque[Record] = deque()  # fetched, not handed out
        self._open: dict[int, Delivery] = {}
        self.position = -1  # next offset to fetch
        self.takes_io = -1  # offset of the next record, once it is known that opening it takes IO
        self.committed: int | None = None  # the last offset committed in this tenure

    @property
    def begun(self) -> bool:
        return self._marks is not None

    def begin(self, start: int) -> None:
        """Harmless when it has begun."""
        if self._marks is None:
            self._marks, self.position = Watermark(start), start

    def add(self, record: Record) -> None:
        """A fetched record. Raises ValueError for an offset that lies before the position."""
        if record.at.offset < self.position:
            raise ValueError(f"{record.at} comes after {self.position - 1}")
        self._waiting.append(record)
        self.position = record.at.offset + 1

    def skip_to(self, position: int) -> None:
        """Nothing that could be handed out lies before this; ignored while records wait."""
        if not self._waiting and position > self.position:
            self._begun().skip_to(position)
            self.position = position

    @property
    def next(self) -> Record | None:
        return self._waiting[0] if self._waiting else None

    def take(self) -> Record:
        """The next record; until it is done or settled, no commit passes it."""
        record = self._waiting.popleft()
        self._begun().handed_out(record.at.offset)
        return record

    def deliver(self, delivery: Delivery) -> None:
        """What has been taken there is this delivery."""
        self._open[delivery.at.offset] = delivery

    def settle(self, offset: int) -> None:
        """What has been taken there became no delivery: it has been dealt with otherwise."""
        self._begun().finished(offset)

    def done(self, delivery: Delivery) -> bool:
        """False for a delivery that is not open in this tenure."""
        if self._open.get(delivery.at.offset) is not delivery:
            return False
        del self._open[delivery.at.offset]
        return self._begun().finished(delivery.at.offset)

    def to_commit(self) -> int | None:
        """The offset to commit; None when that has been done."""
        if self._marks is None or self._marks.committable == self.committed:
            return None
        return self._marks.committable

    def _begun(self) -> Watermark:
        if self._marks is None:
            raise RuntimeError("a tenure without a position")
        return self._marks


def oldest(tenures: Iterable[Tenure]) -> tuple[Tenure, Record] | None:
    """The record to hand out next. A broker delivers one partition's chunk after the other; served like that, a full
    partition would make the others of its worker wait for a whole chunk."""
    waiting = [(tenure, record) for tenure in tenures if (record := tenure.next)]
    return min(waiting, key=lambda one: (one[1].timestamp_ms, one[1].at.partition), default=None)
