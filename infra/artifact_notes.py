"""ArtifactNotes on Redis: small, with a TTL each, all in one slot."""

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from infra import keys
from infra.redis_client import Script, answered


class RedisArtifactNotes:
    """`flight_ttl_ms` is shortened in tests only."""

    def __init__(self, redis: Redis, *, flight_ttl_ms: int = keys.FLIGHT_TTL_MS) -> None:
        self._redis = redis
        self._flight_ttl_ms = flight_ttl_ms
        self._take_off = Script(redis, "flight_take_off")
        self._fly_on = Script(redis, "flight_on")
        self._land = Script(redis, "flight_land")

    async def get(self, artifacts: Sequence[str]) -> list[bytes | None]:
        if not artifacts:
            return []
        async with answered():
            found: Any = await self._redis.mget([keys.note(one) for one in artifacts])  # bytes: nothing is decoded
        return list(found)

    async def put(self, artifact: str, note: bytes) -> None:
        async with answered():
            await self._redis.set(keys.note(artifact), note, px=keys.NOTE_TTL_MS)

    async def drop(self, artifact: str) -> None:
        async with answered():
            await self._redis.delete(keys.note(artifact))

    async def take_off(self, artifact: str, maker: str) -> int:
        return int(await self._take_off(_flight(artifact), [maker, self._flight_ttl_ms, keys.TRIES_TTL_MS]))

    async def fly_on(self, artifacts: Sequence[str], maker: str) -> None:
        if artifacts:
            await self._fly_on([keys.flight(one) for one in artifacts], [maker, self._flight_ttl_ms])

    async def land(self, artifact: str, maker: str) -> None:
        await self._land(_flight(artifact), [maker])

    async def joined(self, request_id: str) -> bool:
        async with answered():
            return bool(await self._redis.exists(keys.joined(request_id)))

    async def mark_joined(self, request_id: str) -> None:
        async with answered():
            await self._redis.set(keys.joined(request_id), 1, px=keys.JOINED_TTL_MS)


def _flight(artifact: str) -> list[str]:
    return [keys.flight(artifact), keys.tries(artifact)]
