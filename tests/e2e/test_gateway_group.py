"""Several gateways on one port, as processes: they start together, come back one by one and stop together."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.settings import variable
from tests.e2e.group_processes import COMMAND
from tests.waiting import until

pytestmark = pytest.mark.services  # it needs none, but two dozen processes take their time

START_S = 30.0
IDS = ("gw-0", "gw-1")


class Running:
    """A keeper and its members."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self.process = process
        self.port = port
        self.folder = folder
        self.children = psutil.Process(process.pid).children

    async def ask(self) -> str:
        """Who answers; "" when nobody does."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionRefusedError:
            return ""
        try:
            return (await reader.read()).decode()
        except ConnectionResetError:  # it was in the queue of one that died
            return ""
        finally:
            writer.close()

    async def all_answer(self) -> bool:
        return {await self.ask() for _ in range(40)} == set(IDS)

    def member(self, name: str) -> psutil.Process:
        return next(one for one in self.children() if one.environ()[variable("gateway_id")] == name)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def keeper(shares_ports: bool = True) -> Running:
        given = {"TRIPTYCH_HOME": str(tmp_path), "TRIPTYCH_GATEWAY_ID": "gw", "TRIPTYCH_PORT": "0"}
        process = subprocess.Popen(
            [*COMMAND, "2", "shares" if shares_ports else "inherits"],
            env={**os.environ, **given, "TRIPTYCH_DRAIN_S": "5"},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        started.append(Running(process, int(process.stdout.readline()), tmp_path))
        return started[-1]

    yield keeper
    for one in started:
        members = one.children() if one.process.poll() is None else []
        one.process.kill()
        one.process.communicate()
        psutil.wait_procs(members, timeout=10)
        assert not any(member.is_running() for member in members)


@pytest.mark.parametrize("shares_ports", [True, False])
async def test_all_answer_on_one_port_one_that_dies_comes_back_and_a_stop_reaches_all(
    start: Start, shares_ports: bool
) -> None:
    group = start(shares_ports)
    if shares_ports:
        await until(group.all_answer, START_S)
    else:  # who is asked takes what it can get
        await until(lambda: answers(group), START_S)
    dead = group.member("gw-1")
    dead.kill()
    await until(lambda: not dead.is_running(), 5)
    for _ in range(20):
        assert await group.ask() == "gw-0"
    await until(lambda: len(group.children()) == 2, START_S)
    group.member("gw-0").kill()  # the other serves alone, so it is back
    await until(lambda: is_answered_by(group, "gw-1"), START_S)
    await until(lambda: len(group.children()) == 2, START_S)
    (group.folder / "gw-0.up").unlink()
    await until(lambda: (group.folder / "gw-0.up").exists(), START_S)
    group.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(group.process.wait, 20) == 0
    assert (group.folder / "gw-1.drained").exists()
    assert await group.ask() == ""


async def answers(group: Running) -> bool:
    return await group.ask() != ""


async def is_answered_by(group: Running, name: str) -> bool:
    return await group.ask() == name


async def test_nobody_listens_before_all_can(start: Start, tmp_path: Path) -> None:
    (tmp_path / "gw-1.hold").touch()
    group = start()
    await until(lambda: all((tmp_path / f"{one}.up").exists() for one in IDS), START_S)
    assert await group.ask() == ""
    (tmp_path / "gw-1.hold").unlink()
    await until(group.all_answer, START_S)


async def test_one_that_is_away_at_the_start_is_tried_again(start: Start, tmp_path: Path) -> None:
    (tmp_path / "gw-0.later").touch()
    await until(start().all_answer, START_S)


async def test_one_that_cannot_run_ends_the_group_with_its_code(start: Start, tmp_path: Path) -> None:
    (tmp_path / "gw-1.cannot").touch()
    group = start()
    assert await asyncio.to_thread(group.process.wait, START_S) == 2


async def test_members_whose_keeper_was_killed_end_by_themselves(start: Start) -> None:
    group = start()
    await until(group.all_answer, START_S)
    members = group.children()
    group.process.kill()
    _, alive = await asyncio.to_thread(psutil.wait_procs, members, 15)
    assert not alive
    assert all((group.folder / f"{one}.drained").exists() for one in IDS)


async def test_a_second_signal_waits_for_nothing(start: Start) -> None:
    group = start()
    await until(group.all_answer, START_S)
    stuck = group.member("gw-0")
    stuck.suspend()
    group.process.send_signal(signal.SIGTERM)
    await until(lambda: (group.folder / "gw-1.drained").exists(), 10)
    group.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(group.process.wait, 10) == 130
    stuck.resume()
    await asyncio.to_thread(stuck.wait, 15)
