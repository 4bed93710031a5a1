"""One Redis channel, listened to on a connection of its own that comes back by itself."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from infra.redis_client import TRANSIENT

log = logging.getLogger(__name__)

RETRY_FIRST_S, RETRY_MOST_S = 0.05, 2.0


class Channel:
    """Lossy: what is published while the connection is down is gone. `on_subscribed` runs whenever it is up again.

    `idle_s`: after this long without a message the connection is asked whether it lives, and given up after twice that.
    """

    def __init__(
        self, client: Redis, name: str, *, on_subscribed: Callable[[], None] = lambda: None, idle_s: float = 5.0
    ) -> None:
        self._client = client
        self._name = name
        self._on_subscribed = on_subscribed
        self._idle_s = idle_s
        self._retry_s = RETRY_FIRST_S
        self.connected = False

    async def messages(self) -> AsyncGenerator[bytes]:
        """Never ends; close the generator (contextlib.aclosing) to hang up."""
        while True:
            try:
                async with aclosing(self._connection()) as arriving:
                    async for data in arriving:
                        yield data
            except TRANSIENT as error:
                log.warning("%s: connection lost, trying again in %.2f s: %r", self._name, self._retry_s, error)
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(self._retry_s * 2, RETRY_MOST_S)

    async def _connection(self) -> AsyncGenerator[bytes]:
        """The messages of one connection, until it is lost or no longer answers (TRANSIENT)."""
        async with self._client.pubsub() as pubsub:
            try:
                async with asyncio.timeout(self._idle_s):
                    await pubsub.subscribe(self._name)
                while True:
                    kind, data = await self._next(pubsub)
                    if kind == "message":
                        yield data
                    elif kind == "subscribe":
                        self._subscribed()
            finally:
                self.connected = False

    async def _next(self, pubsub: PubSub) -> tuple[str, bytes]:
        """What comes next; after some silence, at least an answer to the question whether anybody is there."""
        try:
            return await self._receive(pubsub)
        except TimeoutError:
            await pubsub.ping()
        return await self._receive(pubsub)

    async def _receive(self, pubsub: PubSub) -> tuple[str, bytes]:
        async with asyncio.timeout(self._idle_s):
            message = await pubsub.get_message(timeout=None)
        return (message["type"], message["data"]) if message else ("", b"")

    def _subscribed(self) -> None:
        # The client may have reconnected inside a call, unseen by us; but each connection confirms its subscription.
        self.connected = True
        self._retry_s = RETRY_FIRST_S
        self._on_subscribed()
