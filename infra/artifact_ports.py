"""The interface of what is noted about artifacts; its twin is in memory_notes.py."""

from collections.abc import Sequence
from typing import Protocol


class ArtifactNotes(Protocol):
    """What encoders tell each other in passing: what has been made, and who is making what.

    Nothing here is the truth, which the object store holds; losing it costs work, never correctness. Every verb raises
    Unavailable when the store of notes gives no answer in time; to call it again is harmless.
    """

    async def get(self, artifacts: Sequence[str]) -> list[bytes | None]:
        """What was put for these object keys, in one round trip."""
        ...

    async def put(self, artifact: str, note: bytes) -> None:
        """Kept for a while."""
        ...

    async def drop(self, artifact: str) -> None:
        """Its object has turned out to be gone: whoever asks next shall look at the store. Harmless when absent."""
        ...

    async def take_off(self, artifact: str, maker: str) -> int:
        """Begin to make it, if nobody else who lives does: which try this is, counting those whose maker died. Or 0.

        The same maker asking again gets the same answer. It must `fly_on` or count as dead after FLIGHT_TTL_MS.
        """
        ...

    async def fly_on(self, artifacts: Sequence[str], maker: str) -> None:
        """Still at work on all of these."""
        ...

    async def land(self, artifact: str, maker: str) -> None:
        """Not at work on it any more, whatever came of it; nothing happens if it is another's by now."""
        ...

    async def joined(self, request_id: str) -> bool:
        """Whether `mark_joined` was called for it a while ago."""
        ...

    async def mark_joined(self, request_id: str) -> None: ...
