"""Session fixtures: each service starts when the first test asks for it and stops with the session."""

from collections.abc import Iterator

import pytest

from tests import services
from tests.stack import Stack
from tests.stack import running as running_stack


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with services.redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with services.kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture
def kafka_alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """For tests of consumer groups. The embedded broker starts at once, and needs eleven seconds to let a new member
    into a group whose last one was killed by another test: there, each test has a broker of its own."""
    if not services.broker_is_embedded():
        yield request.getfixturevalue("kafka")
        return
    with services.kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.S3]:
    with services.object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """All that `triptych up` serves, with the real models; one for the session, because it takes a minute to start."""
    with running_stack(tmp_path_factory.mktemp("stack"), *services.broker_wish()) as one:
        yield one
