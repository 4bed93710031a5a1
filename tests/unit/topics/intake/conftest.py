from collections.abc import AsyncIterator

import pytest

from tests.unit.topics.intake.desk import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """One that may go nowhere private, with a name server that knows the wrong things."""
    yield Desk(
        [],
        {
            "loopback.test": [["127.0.0.1"]],
            "metadata.test": [["169.254.169.254"]],
            "both.test": [["93.184.215.14", "10.0.0.7"]],
            "mapped.test": [["::ffff:10.0.0.7"]],
            "link-local.test": [["fe80::1%1"]],
        },
    )
