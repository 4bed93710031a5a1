"""One suite, every backend."""

from collections.abc import AsyncIterator

import pytest

from tests.contracts.result_worlds import World, memory_world, redis_world


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The result path, in memory and on Redis."""
    if request.param == "memory":
        async with memory_world() as world:
            yield world
    else:
        async with redis_world(request.getfixturevalue("redis_url")) as world:
            yield world
