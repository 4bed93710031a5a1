"""The one place that builds a Redis client and calls scripts: time limits, retries and the translation of errors."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from infra.faults import Unavailable

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
HEALTH_CHECK_S = 15
RETRIES = 3

Argument: TypeAlias = str | int | bytes

# What time may heal: no answer (a TimeoutError is an OSError), a full store, a replica about to become the primary.
TRANSIENT = (RedisConnectionError, RedisTimeoutError, OutOfMemoryError, ReadOnlyError, OSError)


def connect(url: str, *, max_connections: int = 64) -> Redis:
    """A client that connects when it is first used; past `max_connections` a command waits for a free one.

    Every command is sent again after a lost connection, so each must be harmless when run twice: our scripts see to it
    themselves (an append compares the batch, a claim carries the id of its call). Waits are bounded by `answered`.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=ANSWER_TIMEOUT_S,
        protocol=2,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        # A limit here turns each send into an asyncio.wait_for, which is dear and, on Python 3.11, swallows a
        # cancellation that arrives just when the send is done (seen: a task that could not be stopped).
        socket_timeout=None,
        health_check_interval=HEALTH_CHECK_S,
        retry=Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.5), RETRIES),
        # An optional extension of one vendor; asking for it costs every new connection a round trip.
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    return Redis.from_pool(pool)


@asynccontextmanager
async def answered(within_s: float = ANSWER_TIMEOUT_S) -> AsyncIterator[None]:
    """Wrap every use of a client: no answer in time, or a fault that time may heal, becomes the built-in
    Unavailable, which is all that other houses know."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TRANSIENT as error:
        raise Unavailable(f"redis: {str(error) or 'no answer in time'}") from error


class Script:
    """A Lua script of infra/lua, called by its hash; a server that has lost it is given it again."""

    def __init__(self, client: Redis, name: str) -> None:
        source = resources.files("infra").joinpath("lua", f"{name}.lua").read_text()
        self._script = client.register_script(source)

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Raises Unavailable when Redis gives no answer in time, also after retries."""
        async with answered():
            return await self._script(keys=keys, args=args)
