"""One Redis channel, listened to on a connection of its own that comes back by itself."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ResponseError

from infra.faults import Refused, Unavailable
from infra.patience import Outage
from infra.redis_client import translated


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
        self._outage = Outage(f"channel {name}")
        self.connected = False

    async def messages(self) -> AsyncGenerator[bytes]:
        """Never ends; close the generator (contextlib.aclosing) to hang up."""
        while True:
            try:
                async with aclosing(self._connection()) as arriving:
                    async for data in arriving:
                        yield data
            except (
                Unavailable,
                Refused,
            ) as error:  # rights may be given back, too
                await self._outage.failed(error)

    async def _connection(self) -> AsyncGenerator[bytes]:
        """The messages of one connection, until it is lost or no longer answers. Raises Unavailable, Refused."""
        with translated():
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
        try:
            return await self._receive(pubsub)
        except ResponseError:  # an answer as well: a server whose disk is full refuses pings, and publishes on
            return "", b""

    async def _receive(self, pubsub: PubSub) -> tuple[str, bytes]:
        async with asyncio.timeout(self._idle_s):
            message = await pubsub.get_message(timeout=None)
        return (message["type"], message["data"]) if message else ("", b"")

    def _subscribed(self) -> None:
        # The client may have reconnected inside a call, unseen by us; but each connection confirms its subscription.
        self.connected = True
        self._outage.over()
        self._on_subscribed()
