"""What may end an exchange early, and how many there may be."""

import asyncio

import pytest

from gateway.exchange import Interrupt, Interrupted, OpenRequests, watch
from schemas.errors import TriptychError


async def test_an_interrupt_ends_what_is_awaited_inside() -> None:
    interrupt = Interrupt(60)
    asyncio.get_running_loop().call_later(0.01, interrupt.fire, "gone")
    with pytest.raises(Interrupted) as raised:
        async with interrupt:
            await asyncio.Event().wait()
    assert raised.value.cause == "gone"


async def test_time_is_a_cause_too() -> None:
    with pytest.raises(Interrupted) as raised:
        async with Interrupt(0.01):
            await asyncio.Event().wait()
    assert raised.value.cause == "deadline"


async def test_the_first_cause_stands() -> None:
    interrupt = Interrupt(60)
    with pytest.raises(Interrupted) as raised:
        async with interrupt:
            interrupt.fire("stopping")
            await asyncio.sleep(0)
            interrupt.fire("gone")
            await asyncio.Event().wait()
    assert raised.value.cause == "stopping"


async def test_outside_nothing_happens() -> None:
    interrupt = Interrupt(60)
    interrupt.fire("gone")
    async with interrupt:
        await asyncio.sleep(0)
    interrupt.fire("gone")
    await asyncio.sleep(0)


async def test_errors_from_inside_pass_unchanged() -> None:
    with pytest.raises(TimeoutError, match="of my own"):
        async with Interrupt(60):
            raise TimeoutError("of my own")


async def test_cancelling_the_task_is_no_interrupt() -> None:
    async def wait() -> None:
        async with Interrupt(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_disconnect_fires() -> None:
    messages = [{"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, str]:
        await asyncio.sleep(0)
        return messages.pop(0)

    interrupt = Interrupt(60)
    with pytest.raises(Interrupted, match="gone"):
        async with interrupt:
            await watch(receive, interrupt)  # type: ignore[arg-type]  # ASGI messages are dicts
            await asyncio.Event().wait()


def test_past_the_limit_requests_are_refused_and_room_comes_back() -> None:
    open_requests = OpenRequests(1)
    open_requests.enter()
    with pytest.raises(TriptychError) as raised:
        open_requests.enter()
    assert (raised.value.code, raised.value.retry_after_s) == ("rate_limited", 1)
    assert len(open_requests) == 1
    open_requests.leave()
    open_requests.enter()
    assert len(open_requests) == 1


async def test_those_that_are_being_answered_are_interrupted_together() -> None:
    open_requests, interrupts = OpenRequests(2), [Interrupt(60), Interrupt(60)]

    async def answer(interrupt: Interrupt) -> None:
        with open_requests.entered(interrupt):
            async with interrupt:
                await asyncio.Event().wait()

    answering = [asyncio.create_task(answer(one)) for one in interrupts]
    await asyncio.sleep(0)
    open_requests.interrupt_all("stopping")
    ended = await asyncio.gather(*answering, return_exceptions=True)
    assert [one.cause for one in ended if isinstance(one, Interrupted)] == ["stopping"] * 2
