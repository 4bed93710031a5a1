from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.local.process import Part, PartFailed
from cli.local.supervisor import DEATHS_BEFORE_GIVING_UP, Member, Supervisor
from infra.clock import ManualClock


class FakeChild:
    """A process that lives until a test says otherwise, or until it is asked to stop."""

    def __init__(self, part: Part, journal: list[str], *, stubborn: bool) -> None:
        self._name = part.name
        self._journal = journal
        self._stubborn = stubborn
        self.code: int | None = None
        self.pid = 1000 + len(journal)
        journal.append(f"start {part.name}")

    def exit_code(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self._journal.append(f"terminate {self._name}")
        if not self._stubborn:
            self.code = -15

    def kill(self) -> None:
        self._journal.append(f"kill {self._name}")
        self.code = -9


class World:
    """The supervisor's surroundings: its clock, which parts answer, and what has happened to processes so far."""

    def __init__(self, tmp_path: Path, groups: Sequence[Sequence[str]], stop: Sequence[Sequence[str]] = ()) -> None:
        self.clock = ManualClock()
        self.journal: list[str] = []
        self.answering: set[str] = set()
        self.stubborn: set[str] = set()
        self.children: dict[str, FakeChild] = {}
        self._folder = tmp_path
        parts = [[self._part(name) for name in group] for group in groups]
        self.supervisor = Supervisor(parts, stop, self._spawn, self.clock)

    def _part(self, name: str) -> Part:
        return Part(
            name=name,
            argv=["true"],
            log=self._folder / f"{name}.log",
            port=1,
            ready=lambda: name in self.answering,
            start_limit_s=10.0,
            stop_limit_s=5.0,
        )

    def _spawn(self, part: Part) -> FakeChild:
        self.children[part.name] = FakeChild(part, self.journal, stubborn=part.name in self.stubborn)
        return self.children[part.name]

    def member(self, name: str) -> Member:
        return next(one for one in self.supervisor.members if one.part.name == name)

    def tick(self, after_s: float = 0.0) -> None:
        self.clock.advance(after_s)
        self.supervisor.tick()

    def pause(self) -> bool:
        self.clock.advance(1.0)
        return True


def test_a_later_group_waits_until_the_one_before_it_serves(tmp_path: Path) -> None:
    world = World(tmp_path, [["broker", "redis"], ["gateway"]])
    world.answering = {"broker"}
    world.tick()
    assert world.member("gateway").state == "waiting"
    world.answering.add("redis")
    world.tick()
    world.tick()
    assert world.member("gateway").state == "starting"


def test_a_part_that_dies_is_started_again_after_its_delay_and_counted(tmp_path: Path) -> None:
    world = World(tmp_path, [["worker"]])
    world.answering = {"worker"}
    world.tick()
    world.children["worker"].code = -9
    world.tick()
    assert (world.member("worker").state, world.member("worker").last_exit) == ("restarting", -9)
    world.tick(after_s=0.4)
    assert world.member("worker").state == "restarting"
    world.tick(after_s=0.2)
    assert (world.member("worker").state, world.member("worker").restarts) == ("ready", 1)


def test_what_a_dead_part_left_in_its_group_is_killed_before_the_next_start(tmp_path: Path) -> None:
    world = World(tmp_path, [["worker"]])
    world.tick()
    world.children["worker"].code = 1
    world.tick()
    world.tick(after_s=1.0)
    assert world.journal == ["start worker", "kill worker", "start worker"]


def test_the_death_of_a_service_does_not_stop_the_groups_after_it(tmp_path: Path) -> None:
    world = World(tmp_path, [["broker"], ["gateway"]])
    world.answering = {"broker", "gateway"}
    world.tick()
    world.children["broker"].code = -9
    world.children["gateway"].code = -9
    world.tick()
    assert world.member("gateway").state == "restarting"


def test_a_part_that_never_serves_is_given_up_with_the_end_of_its_log(tmp_path: Path) -> None:
    world = World(tmp_path, [["worker"]])
    (tmp_path / "worker.log").write_text("cannot find the model\n")
    with pytest.raises(PartFailed, match=r"worker ended with code 1[^$]*cannot find the model"):
        for _ in range(DEATHS_BEFORE_GIVING_UP * 3):
            world.tick(after_s=60.0)
            world.children["worker"].code = 1
    assert world.journal.count("start worker") == DEATHS_BEFORE_GIVING_UP


def test_wrong_settings_are_not_tried_twice(tmp_path: Path) -> None:
    world = World(tmp_path, [["worker"]])
    world.tick()
    world.children["worker"].code = 2
    with pytest.raises(PartFailed):
        world.tick()


def test_a_part_that_does_not_answer_in_time_is_killed_and_started_again(tmp_path: Path) -> None:
    world = World(tmp_path, [["worker"]])
    world.tick()
    world.tick(after_s=11.0)
    assert (world.member("worker").state, world.journal[-1]) == ("restarting", "kill worker")


def test_parts_stop_in_the_order_given_and_the_rest_last(tmp_path: Path) -> None:
    world = World(tmp_path, [["broker"], ["gateway", "llm"]], stop=[["gateway"], ["llm"]])
    world.answering = {"broker", "gateway", "llm"}
    world.tick()
    world.supervisor.stop(world.pause)
    stops = [line for line in world.journal if line.startswith("terminate")]
    assert stops == ["terminate gateway", "terminate llm", "terminate broker"]
    assert {member.state for member in world.supervisor.members} == {"stopped"}


def test_a_part_that_ignores_the_stop_is_killed_at_its_limit(tmp_path: Path) -> None:
    world = World(tmp_path, [["gateway"]])
    world.stubborn = {"gateway"}
    world.tick()
    before = world.clock.monotonic()
    world.supervisor.stop(world.pause)
    assert world.clock.monotonic() - before == 5.0
    assert world.journal[-2:] == ["terminate gateway", "kill gateway"]


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, [["gateway"]])
    world.stubborn = {"gateway"}
    world.tick()
    before = world.clock.monotonic()
    world.supervisor.stop(lambda: False)
    assert world.clock.monotonic() == before
    assert world.journal[-1] == "kill gateway"
