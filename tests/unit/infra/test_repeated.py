"""What is done again and again goes on being done."""

import pytest

from infra.repeated import Repeated
from tests.waiting import until


async def test_a_round_that_fails_is_told_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    rounds: list[int] = []

    async def look() -> None:
        rounds.append(1)
        if len(rounds) == 2:
            raise LookupError("not this time")

    repeated = Repeated(look, 0.001, "looking")
    await repeated.start()
    await until(lambda: len(rounds) > 3)
    await repeated.close()
    assert "looking failed" in caplog.text and "not this time" in caplog.text


async def test_the_first_round_s_failure_is_the_caller_s() -> None:
    async def look() -> None:
        raise LookupError("nothing there")

    repeated = Repeated(look, 0.001, "looking")
    with pytest.raises(LookupError):
        await repeated.start()
    await repeated.close()
