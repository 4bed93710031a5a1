"""Which offset may be committed while jobs of one partition finish in any order. Pure."""

from collections import OrderedDict


class Watermark:
    """One partition during one tenure. `committable` never passes a job that was handed out and is not finished.

    Offsets need not be contiguous: compaction and transaction markers leave holes.
    """

    def __init__(self, start: int) -> None:
        self._open: OrderedDict[int, None] = OrderedDict()  # handed out, not finished; ascending
        self._next = start  # everything below has been handed out

    @property
    def committable(self) -> int:
        """The offset to commit: the first one that is not finished."""
        return next(iter(self._open), self._next)

    @property
    def next(self) -> int:
        """Everything below has been handed out."""
        return self._next

    def handed_out(self, offset: int) -> None:
        """In ascending order.

        Raises:
            ValueError: this offset, or a later one, has been handed out before.
        """
        if offset < self._next:
            raise ValueError(f"offset {offset} handed out after {self._next - 1}")
        self._open[offset] = None
        self._next = offset + 1

    def finished(self, offset: int) -> bool:
        """False when it is not open: never handed out here, or finished before."""
        if offset not in self._open:
            return False
        del self._open[offset]
        return True

    def skip_to(self, offset: int) -> None:
        """Everything below needs no handing out: holes at the end of what was read."""
        self._next = max(self._next, offset)
