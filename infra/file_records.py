"""Records of uploaded files: in Redis, where they end by themselves, and a twin in memory."""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from redis.asyncio import Redis

from infra import keys
from infra.clock import Clock
from infra.redis_client import answered
from schemas.files import FileRecord

# Of one owner; older files can still be used, but are not listed.
MOST_LISTED = 10_000

log = logging.getLogger(__name__)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FileRecord)


class FileRecords(Protocol):
    """Every verb raises Unavailable when there is no answer in time."""

    async def add(self, record: FileRecord) -> None:
        """It lives until its `expires_at`."""
        ...

    async def update(self, record: FileRecord) -> None:
        """Nothing happens when it is gone."""
        ...

    async def get(self, file_id: str) -> FileRecord | None: ...

    async def remove(self, record: FileRecord) -> None:
        """Harmless when it is gone."""
        ...

    async def listing(self, owner: str, after: str, most: int) -> list[FileRecord]:
        """The owner's files, newest first, from the one behind `after` on; an unknown `after` is the beginning."""
        ...


class RedisFileRecords:
    def __init__(self, client: Redis, clock: Clock) -> None:
        self._redis = client
        self._clock = clock

    async def add(self, record: FileRecord) -> None:
        ttl_s = max(1, round(record.expires_at - self._clock.now()))
        listed = keys.files_of(record.owner)
        async with answered(), self._redis.pipeline(transaction=True) as batch:
            batch.set(keys.file(record.id), _encoder.encode(record), ex=ttl_s)
            batch.zadd(listed, {record.id: record.created_at})
            batch.zremrangebyrank(listed, 0, -MOST_LISTED - 1)
            batch.expire(listed, ttl_s, nx=True)
            batch.expire(listed, ttl_s, gt=True)
            await batch.execute()

    async def update(self, record: FileRecord) -> None:
        async with answered():
            await self._redis.set(keys.file(record.id), _encoder.encode(record), xx=True, keepttl=True)

    async def get(self, file_id: str) -> FileRecord | None:
        async with answered():
            raw: Any = await self._redis.get(keys.file(file_id))
        return _record(file_id, raw)

    async def remove(self, record: FileRecord) -> None:
        async with answered(), self._redis.pipeline(transaction=True) as batch:
            batch.delete(keys.file(record.id))
            batch.zrem(keys.files_of(record.owner), record.id)
            await batch.execute()

    async def listing(self, owner: str, after: str, most: int) -> list[FileRecord]:
        found: list[FileRecord] = []
        async with answered():
            rank: Any = await self._redis.zrevrank(keys.files_of(owner), after)
            begin = 0 if rank is None else rank + 1
            while len(found) < most:
                ids: Any = await self._redis.zrevrange(keys.files_of(owner), begin, begin + most - len(found) - 1)
                if not ids:
                    break
                there = await self._read(ids)
                gone = [one for one, record in zip(ids, there, strict=True) if record is None]
                if gone:
                    await self._redis.zrem(keys.files_of(owner), *gone)
                found += [record for record in there if record is not None]
                begin += len(ids) - len(gone)
        return found

    async def _read(self, ids: Sequence[bytes]) -> list[FileRecord | None]:
        file_ids = [one.decode(errors="replace") for one in ids]
        raws: Any = await self._redis.mget([keys.file(one) for one in file_ids])
        return [_record(file_id, raw) for file_id, raw in zip(file_ids, raws, strict=True)]


def _record(file_id: str, raw: bytes | None) -> FileRecord | None:
    """One that nobody understands is as good as absent: whoever has its id uploads anew."""
    if raw is None:
        return None
    try:
        return _decoder.decode(raw)
    except msgspec.MsgspecError as error:
        log.warning("the record of %s cannot be read: %s", file_id, error)
        return None


class MemoryFileRecords:
    """The twin: one process, the same semantics."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, FileRecord] = {}

    async def add(self, record: FileRecord) -> None:
        self._records[record.id] = record

    async def update(self, record: FileRecord) -> None:
        if await self.get(record.id) is not None:
            self._records[record.id] = record

    async def get(self, file_id: str) -> FileRecord | None:
        record = self._records.get(file_id)
        return record if record is not None and record.expires_at > self._clock.now() else None

    async def remove(self, record: FileRecord) -> None:
        self._records.pop(record.id, None)

    async def listing(self, owner: str, after: str, most: int) -> list[FileRecord]:
        now = self._clock.now()
        mine = [one for one in self._records.values() if one.owner == owner and one.expires_at > now]
        mine.sort(key=lambda one: (one.created_at, one.id), reverse=True)
        begin = next((number + 1 for number, one in enumerate(mine) if one.id == after), 0)
        return mine[begin : begin + most]
