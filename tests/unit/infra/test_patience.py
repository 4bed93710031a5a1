"""Asking again: for how long to wait in between, what the log gets, and what is not waited for."""

import logging
from collections.abc import Awaitable, Callable

import pytest

from infra.faults import Refused, Unavailable
from infra.patience import Outage, patiently


class Pauses:
    """A sleep that takes no time, and remembers how much it would have taken."""

    def __init__(self) -> None:
        self.s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.s.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


def failing(times: int, error: type[Exception] = Unavailable) -> Callable[[], Awaitable[str]]:
    left = iter(range(times))

    async def call() -> str:
        for number in left:
            raise error(f"failure {number}")
        return "answer"

    return call


async def test_pauses_double_up_to_a_bound(pauses: Pauses) -> None:
    assert await patiently(failing(6), "asking", first_s=0.1, most_s=1.0, sleep=pauses) == "answer"
    assert pauses.s == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_an_outage_is_told_of_at_its_beginning_and_at_its_end(
    pauses: Pauses, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await patiently(failing(5), "asking", sleep=pauses)
    assert [record.getMessage() for record in caplog.records] == [
        "asking: trying again until it works: failure 0",
        "asking: works again, after 5 failures",
    ]


async def test_an_answer_at_once_is_nothing_to_tell(pauses: Pauses, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert await patiently(failing(0), "asking", sleep=pauses) == "answer"
    assert (caplog.records, pauses.s) == ([], [])


@pytest.mark.parametrize("error", [Refused, ValueError])
async def test_what_time_does_not_heal_is_not_waited_for(error: type[Exception], pauses: Pauses) -> None:
    with pytest.raises(error):
        await patiently(failing(1, error), "asking", sleep=pauses)
    assert pauses.s == []


async def test_after_an_outage_the_next_one_begins_with_a_short_pause_again(
    pauses: Pauses, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage("asking", first_s=0.1, sleep=pauses)
    for _ in range(2):
        await outage.failed(Unavailable("away"))
        await outage.failed(Unavailable("away"))
        outage.over()
    assert pauses.s == [0.1, 0.2, 0.1, 0.2]
    assert caplog.text.count("trying again") == 2
