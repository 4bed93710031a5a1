"""What is done again and again goes on being done."""

import asyncio

import pytest

from infra.faults import Refused, Unavailable
from infra.repeated import Repeated, regularly
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


@pytest.mark.parametrize("fault", [Unavailable, Refused])
async def test_an_outage_of_many_rounds_is_told_of_once(
    fault: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    rounds: list[int] = []

    async def look() -> None:
        rounds.append(1)
        raise fault("away")

    repeated = Repeated(look, 0.001, "looking")
    repeated.begin()
    await until(lambda: len(rounds) > 3)
    await repeated.close()
    assert caplog.text.count("away") == 1


async def test_regularly_waits_out_an_outage_and_ends_with_whatever_else_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses: list[float] = []
    answers = iter([Unavailable("away"), Unavailable("still away"), None, LookupError("a bug")])

    async def look() -> None:
        if answer := next(answers):
            raise answer

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    with pytest.raises(LookupError):
        await asyncio.wait_for(regularly(look, 0.5, "looking", sleep=sleep), 5)
    assert pauses == [0.5, 0.5, 0.5]
    assert caplog.text.count("away") == 1
