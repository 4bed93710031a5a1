"""Script calls that share round trips, on a real server."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlparse
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from infra.faults import Unavailable
from infra.redis_client import connect
from infra.shared_trips import MOST_TOGETHER, SharedTrips
from tests.proxy import Proxy, proxy_to
from tests.waiting import until

pytestmark = pytest.mark.services

# Adds to a counter; answers what it was given and how often it has been called.
SOURCE = """
if ARGV[1] == 'wrong' then return redis.error_reply('ERR wrong') end
if ARGV[1] == 'later' then return redis.error_reply('OOM later') end
return {ARGV[1], redis.call('INCR', KEYS[1])}
"""


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def key() -> str:
    return f"test:{uuid4().hex}"


async def reads(redis: Redis) -> int:
    """How often the server has read from any connection."""
    return int((await redis.info("stats"))["total_reads_processed"])


async def test_calls_of_one_moment_share_a_trip_and_each_gets_its_own_answer(redis: Redis, key: str) -> None:
    trips = SharedTrips(redis, SOURCE)
    await trips([key], ["first"])  # the server knows the script now
    before = await reads(redis)
    answers = await asyncio.gather(*(trips([key], [str(number)]) for number in range(MOST_TOGETHER)))
    assert await reads(redis) - before <= 4
    assert [int(said) for said, _ in answers] == list(range(MOST_TOGETHER))
    assert sorted(count for _, count in answers) == list(range(2, MOST_TOGETHER + 2))


async def test_more_than_one_trip_holds_go_in_several(redis: Redis, key: str) -> None:
    trips = SharedTrips(redis, SOURCE)
    answers = await asyncio.gather(*(trips([key], [str(number)]) for number in range(3 * MOST_TOGETHER + 1)))
    assert [int(said) for said, _ in answers] == list(range(3 * MOST_TOGETHER + 1))


async def test_nobody_is_forgotten_however_the_calls_fall(redis: Redis, key: str) -> None:
    trips = SharedTrips(redis, SOURCE)

    async def caller(number: int) -> None:
        for step in range(100):
            assert (await trips([key], [f"{number}.{step}"]))[0] == f"{number}.{step}".encode()

    async with asyncio.timeout(30):
        await asyncio.gather(*(caller(number) for number in range(7)))


async def test_a_server_that_has_lost_the_script_is_given_it_again(redis: Redis, key: str) -> None:
    trips = SharedTrips(redis, SOURCE)
    await redis.script_flush()
    answers = await asyncio.gather(*(trips([key], [str(number)]) for number in range(3)))
    assert sorted(count for _, count in answers) == [1, 2, 3]


async def test_an_error_of_one_call_is_only_its_own(redis: Redis, key: str) -> None:
    trips = SharedTrips(redis, SOURCE)
    given = ("a", "wrong", "later", "b")
    a, wrong, later, b = await asyncio.gather(*(trips([key], [each]) for each in given), return_exceptions=True)
    assert (a, b) == ([b"a", 1], [b"b", 2])
    assert isinstance(wrong, ResponseError)
    assert isinstance(later, Unavailable)


async def test_a_caller_that_leaves_takes_nobody_along(redis: Redis, key: str) -> None:
    trips = SharedTrips(redis, SOURCE)
    calls = [asyncio.create_task(trips([key], [str(number)])) for number in range(3)]
    await asyncio.sleep(0)  # all of them wait now, and nothing has been sent
    calls[0].cancel()
    said = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(said[0], asyncio.CancelledError)
    assert said[1:] == [[b"1", 1], [b"2", 2]]


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    url = urlparse(redis_url)
    async with proxy_to(url.hostname or "", url.port or 6379) as made:
        yield made


async def test_while_redis_is_away_every_caller_is_told_and_later_ones_are_answered(proxy: Proxy, key: str) -> None:
    client = connect(f"redis://127.0.0.1:{proxy.port}/0")
    trips = SharedTrips(client, SOURCE)
    await trips([key], ["before"])
    proxy.cut()
    said = await asyncio.gather(*(trips([key], [str(number)]) for number in range(3)), return_exceptions=True)
    assert [type(one) for one in said] == [Unavailable] * 3
    proxy.restore()
    assert await trips([key], ["after"]) == [b"after", 2]
    await client.aclose()


async def test_a_connection_that_hangs_holds_up_only_the_calls_on_it(proxy: Proxy, key: str) -> None:
    client = connect(f"redis://127.0.0.1:{proxy.port}/0")
    trips = SharedTrips(client, SOURCE)
    await trips([key], ["before"])
    proxy.freeze()
    hanging = asyncio.create_task(trips([key], ["hanging"]))
    await until(lambda: len(client.connection_pool._in_use_connections) == 1)
    async with asyncio.timeout(1):
        answers = await asyncio.gather(*(trips([key], [str(number)]) for number in range(3)))
        assert [said for said, _ in answers] == [b"0", b"1", b"2"]
        assert (await trips([key], ["more"]))[0] == b"more"
    assert not hanging.done()
    hanging.cancel()
    await client.aclose()
