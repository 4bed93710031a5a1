"""Signals for the workers of a model, over a Redis channel."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from redis.asyncio import Redis

from infra import keys
from infra.channel import Channel
from schemas import codec
from schemas.signals import Signal

log = logging.getLogger(__name__)


class RedisSignals:
    """Signals over one Redis client; a connection of its own per `listen`."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def listen(self, model: str) -> AsyncGenerator[Signal]:
        async with aclosing(Channel(self._client, keys.signals(model)).messages()) as messages:
            async for raw in messages:
                try:
                    yield codec.decode_signal(raw)
                except msgspec.MsgspecError as error:
                    log.warning("a signal nobody understands (from a newer version?): %s", error)
