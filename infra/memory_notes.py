"""ArtifactNotes in one process. Flights expire by a clock; notes are kept."""

from collections import Counter
from collections.abc import Sequence

from infra import keys
from infra.clock import Clock


class MemoryArtifactNotes:
    """One for all workers of a test."""

    def __init__(self, clock: Clock, *, flight_ttl_ms: int = keys.FLIGHT_TTL_MS) -> None:
        self._clock = clock
        self._ttl_s = flight_ttl_ms / 1000
        self._notes: dict[str, bytes] = {}
        self._flights: dict[str, tuple[str, float]] = {}  # maker, and when it counts as dead
        self._tries: Counter[str] = Counter()
        self._joined: set[str] = set()

    def forget(self) -> None:
        """What a flush of Redis does."""
        for one in (self._notes, self._flights, self._tries, self._joined):
            one.clear()

    async def get(self, artifacts: Sequence[str]) -> list[bytes | None]:
        return [self._notes.get(one) for one in artifacts]

    async def put(self, artifact: str, note: bytes) -> None:
        self._notes[artifact] = note

    async def drop(self, artifact: str) -> None:
        self._notes.pop(artifact, None)

    async def take_off(self, artifact: str, maker: str) -> int:
        holder = self._holder(artifact)
        if holder not in (None, maker):
            return 0
        self._flights[artifact] = (maker, self._clock.monotonic() + self._ttl_s)
        if holder is None:
            self._tries[artifact] += 1
        return self._tries[artifact] or 1

    async def fly_on(self, artifacts: Sequence[str], maker: str) -> None:
        for one in artifacts:
            if self._holder(one) in (None, maker):
                self._flights[one] = (maker, self._clock.monotonic() + self._ttl_s)

    async def land(self, artifact: str, maker: str) -> None:
        if self._holder(artifact) == maker:
            del self._flights[artifact]
            del self._tries[artifact]

    async def joined(self, request_id: str) -> bool:
        return request_id in self._joined

    async def mark_joined(self, request_id: str) -> None:
        self._joined.add(request_id)

    def _holder(self, artifact: str) -> str | None:
        maker, until = self._flights.get(artifact, ("", 0.0))
        return maker if until > self._clock.monotonic() else None
