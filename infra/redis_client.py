"""The one place that builds a Redis client and calls scripts: time limits, retries and the translation of errors."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import resources
from typing import Any, TypeAlias

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from infra.redis_faults import fault_of

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
RETRIES = 3

Argument: TypeAlias = str | int | bytes

# Asked again on a new connection. The last two: after a fail-over the name stands for another server, but connections
# that are open stay with the old one, which has become a replica.
ON_A_NEW_CONNECTION = (RedisConnectionError, RedisTimeoutError, ReadOnlyError, MasterDownError)


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
        # A ping before a command finds nothing that the command itself would not; and a server whose disk is full
        # refuses it, though all that it holds can be read.
        health_check_interval=0,
        retry=Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.5), RETRIES, ON_A_NEW_CONNECTION),
        # An optional extension of one vendor; asking for it costs every new connection a round trip.
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    return Redis.from_pool(pool)


@contextmanager
def translated() -> Iterator[None]:
    """Errors of Redis as infra/faults.py names them; for uses of a client that bound their waits themselves."""
    try:
        yield
    except Exception as error:
        fault = fault_of(error)
        if fault is None:
            raise
        raise fault from error


@asynccontextmanager
async def answered(within_s: float = ANSWER_TIMEOUT_S) -> AsyncIterator[None]:
    """Wrap every use of a client: `translated`, and no answer in time is Unavailable, too."""
    with translated():
        async with asyncio.timeout(within_s):
            yield


async def ping(client: Redis) -> None:
    """Raises Unavailable or Refused unless it answers."""
    async with answered():
        await client.ping()


class Script:
    """A Lua script of infra/lua, called by its hash; a server that has lost it is given it again."""

    def __init__(self, client: Redis, name: str) -> None:
        source = resources.files("infra").joinpath("lua", f"{name}.lua").read_text()
        self._script = client.register_script(source)

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Raises Unavailable when Redis gives no answer in time, or says "not now"; also after retries."""
        async with answered():
            return await self._script(keys=keys, args=args)
