"""Jobs this worker has read and not begun: the most urgent first, in the order they came among equals."""

from collections.abc import Iterator

from topics.bus import Delivery


class JobQueue:
    """Small: a worker reads only a little ahead of its engine, and leaves the rest on the topic."""

    def __init__(self) -> None:
        self._waiting: list[Delivery] = []
        self.begun = 0  # how many have left to begin, ever

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Delivery]:
        """In the order in which they will begin."""
        return iter(self._waiting)

    def add(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self._waiting.sort(key=lambda one: one.job.head.priority)  # stable: arrival decides among equals

    def next(self) -> Delivery | None:
        if not self._waiting:
            return None
        self.begun += 1
        return self._waiting.pop(0)

    def remove(self, delivery: Delivery) -> bool:
        """False when it has begun meanwhile."""
        if delivery not in self._waiting:
            return False
        self._waiting.remove(delivery)
        return True

    def clear(self) -> None:
        self._waiting.clear()
