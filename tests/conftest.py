"""Session fixtures: each service starts when the first test asks for it and stops with the session."""

from collections.abc import Iterator

import pytest

from tests import services


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with services.redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with services.kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.S3]:
    with services.object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store
