"""One Redis channel, listened to on a connection of its own that comes back by itself."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from redis.asyncio import Redis

from infra.redis_client import translated

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
            except ConnectionError as error:
                log.warning("%s: connection lost, trying again in %.2f s: %s", self._name, self._retry_s, error)
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(self._retry_s * 2, RETRY_MOST_S)

    async def _connection(self) -> AsyncGenerator[bytes]:
        """The messages of one connection. Raises ConnectionError when it is lost or no longer answers."""
        asked = False
        with translated():
            async with self._client.pubsub() as pubsub:
                try:
                    await pubsub.subscribe(self._name)
                    while True:
                        message = await pubsub.get_message(timeout=self._idle_s)
                        if message is not None:
                            asked = False
                            if message["type"] == "message":
                                yield message["data"]
                            elif message["type"] == "subscribe":
                                self._subscribed()
                        elif asked:
                            raise ConnectionError("no answer to a ping")
                        else:
                            await pubsub.ping()
                            asked = True
                finally:
                    self.connected = False

    def _subscribed(self) -> None:
        # The client may have reconnected inside a call, unseen by us; but each connection confirms its subscription.
        self.connected = True
        self._retry_s = RETRY_FIRST_S
        self._on_subscribed()
