"""Who works in the stateless pools, told by the workers themselves. A part of the interfaces of this house."""

from collections.abc import Collection, Sequence
from typing import Protocol


class PoolMembers(Protocol):
    """Pools go by the name of their topic. Every verb raises Unavailable when the store gives no answer in time."""

    async def stay(self, pool: str, worker: str) -> None:
        """That worker works there: true for keys.LEASE_TTL_MS from now, so wanted every keys.TICK_S."""
        ...

    async def leave(self, pool: str, worker: str) -> None:
        """It does no longer, from now on. Harmless when it is not there."""
        ...

    async def look(self, pools: Sequence[str]) -> list[Collection[str]]:
        """Who works in each of these, in their order; one round trip for all."""
        ...
