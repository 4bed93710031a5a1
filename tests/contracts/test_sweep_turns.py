"""Whose turn it is to sweep, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from infra import keys
from infra.faults import Refused
from infra.redis_client import connect
from infra.sweep_turns import SweepTurns
from infra.sweeper import Swept
from tests.waiting import until

pytestmark = pytest.mark.services


class Broom:
    """A sweeper that counts, and may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sweeps = 0
        self.error = error

    async def sweep(self, *, dry_run: bool = False, tell: Callable[[Swept], None] = lambda _: None) -> list[Swept]:
        self.sweeps += 1
        if self.error is not None:
            raise self.error
        return [Swept("outputs/", objects=3, expired=2, failures={"outputs/a": "AccessDenied"})]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    await client.delete(keys.sweep())
    yield client
    await client.delete(keys.sweep())
    await client.aclose()


def turns(broom: Broom, redis: Redis, every_s: int) -> SweepTurns:
    return SweepTurns(broom, redis, every_s)  # type: ignore[arg-type]  # all that is used of one


async def test_one_of_many_sweeps_and_tells_what_it_could_not(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    broom = Broom()
    many = [turns(broom, redis, 60) for _ in range(5)]
    for one in many:
        one.start()
    await until(lambda: "AccessDenied" in caplog.text)
    assert 0 < await redis.ttl(keys.sweep()) <= 60
    for one in many:
        await one.close()
    assert broom.sweeps == 1


async def test_the_next_turn_comes_when_its_time_has_come_whatever_happened(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    broom = Broom(Refused("no listing"))
    one = turns(broom, redis, 1)
    one.start()
    await until(lambda: broom.sweeps > 1)
    await one.close()
    assert "no listing" in caplog.text


async def test_nobody_sweeps_when_that_is_switched_off(redis: Redis) -> None:
    broom = Broom()
    one = turns(broom, redis, 0)
    one.start()
    await asyncio.sleep(0.05)
    await one.close()
    assert broom.sweeps == 0
