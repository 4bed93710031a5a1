"""A signal sets a flag; all steps of a shutdown share one deadline; a second signal forces."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from infra.clock import ManualClock
from infra.faults import Unavailable
from infra.lifecycle import FORCED_EXIT_CODE, Life, signals

STUBBORN = """
import asyncio
from infra.lifecycle import Life, signals

async def main():
    life = Life(60.0)
    async with signals(life):
        print("up", flush=True)
        await life.stopped()
        print("draining", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_signal_sets_the_flag_and_stops_nothing() -> None:
    life = Life(5.0)
    async with signals(life):
        assert not life.stopping
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await life.stopped()
    assert life.stopping


def test_the_deadline_runs_from_the_first_stop() -> None:
    clock = ManualClock()
    life = Life(30.0, clock)
    assert life.deadline().left_s() == 30.0
    life.stop()
    clock.advance(10.0)
    life.stop()
    assert life.deadline().left_s() == 20.0
    clock.advance(100.0)
    assert life.deadline().left_s() == 0.0


def test_a_second_signal_does_not_wait() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "draining\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == FORCED_EXIT_CODE
    process.stdout.close()


async def test_work_is_seen_through_unless_the_flag_is_set_first() -> None:
    life, over = Life(1.0), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    async def nothing() -> None: ...

    assert await life.unless_stopped(nothing())
    asyncio.get_running_loop().call_soon(life.stop)
    assert not await life.unless_stopped(work())
    assert over.is_set()


async def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise Unavailable("no broker")

    with pytest.raises(Unavailable, match="no broker"):
        await Life(1.0).unless_stopped(work())


async def test_what_the_work_raises_once_it_is_stopped_is_told(caplog: pytest.LogCaptureFixture) -> None:
    life = Life(1.0)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Unavailable("no broker")

    asyncio.get_running_loop().call_soon(life.stop)
    assert not await life.unless_stopped(work())
    assert "no broker" in caplog.text
