"""Channel on a real Redis: connections that break loudly and quietly."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from infra.channel import Channel
from tests.contracts.result_worlds import RedisWorld, redis_world
from tests.waiting import until

pytestmark = pytest.mark.services


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[RedisWorld]:
    async with redis_world(redis_url) as world:
        yield world


@asynccontextmanager
async def listening(channel: Channel) -> AsyncIterator[list[bytes]]:
    heard: list[bytes] = []

    async def listen() -> None:
        async with aclosing(channel.messages()) as messages:
            async for data in messages:
                heard.append(data)

    task = asyncio.create_task(listen())
    await until(lambda: channel.connected)
    yield heard
    task.cancel()
    await asyncio.wait([task])
    assert not channel.connected


def said_and_heard(world: RedisWorld, name: str, word: bytes, heard: list[bytes]) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        await world.redis.publish(name, word)
        return word in heard

    return check


async def test_connection_that_is_open_but_silent_is_given_up_and_replaced(world: RedisWorld) -> None:
    channel = Channel(world.far_redis, world.model, idle_s=0.1)
    async with listening(channel) as heard:
        world.proxy.freeze()
        await until(said_and_heard(world, world.model, b"again", heard), within_s=5)


async def test_quiet_channel_is_asked_for_a_sign_of_life_and_kept(world: RedisWorld) -> None:
    subscribed = []
    channel = Channel(world.far_redis, world.model, idle_s=0.05, on_subscribed=lambda: subscribed.append(1))
    async with listening(channel) as heard:
        await asyncio.sleep(0.4)  # the silence itself is what is tested
        await until(said_and_heard(world, world.model, b"still", heard))
    assert subscribed == [1]


async def test_every_new_connection_is_reported(world: RedisWorld) -> None:
    subscribed = []
    channel = Channel(world.far_redis, world.model, on_subscribed=lambda: subscribed.append(1))
    async with listening(channel):
        for expected in (2, 3):
            world.proxy.cut()
            await until(lambda: not channel.connected)
            world.proxy.restore()
            await until(lambda: len(subscribed) == expected)  # noqa: B023  # awaited within the same turn
