"""Keeps the parts of the local stack alive: starts group by group, restarts what dies, stops in the given order.

One thread. Whoever owns the supervisor calls `tick()` a few times a second and draws what `members` say.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from cli.local.process import Part, failure
from infra import backoff
from infra.clock import Clock

State = Literal["waiting", "starting", "ready", "restarting", "stopped"]

# A part that has never served and died this often will not come up by being started again.
DEATHS_BEFORE_GIVING_UP = 3
# By convention of our processes (and argparse): wrong settings or arguments.
CANNOT_RUN_CODE = 2


class Running(Protocol):
    """What a supervisor needs of a process; see cli.local.process.Child."""

    @property
    def pid(self) -> int: ...

    def exit_code(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Member:
    """One part under supervision."""

    def __init__(self, part: Part, spawn: Callable[[Part], Running], clock: Clock) -> None:
        self.part = part
        self.state: State = "waiting"
        self.restarts = 0
        self.has_served = False
        self.last_exit: int | None = None
        self._spawn = spawn
        self._clock = clock
        self._child: Running | None = None
        self._deaths = 0
        self._since = clock.monotonic()
        self._next_start = 0.0

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def start(self) -> None:
        self._child = self._spawn(self.part)
        self._become("starting")

    def tick(self) -> None:
        """Notice a death, a first answer, or that it is time to start again.

        Raises:
            PartFailed: it keeps dying without ever having served.
        """
        if self.state == "restarting" and self._clock.monotonic() >= self._next_start:
            self.restarts += 1
            self.start()
        if self._child is None:
            return
        code = self._child.exit_code()
        if code is not None:
            self._died(code, f"ended with code {code}")
        elif self.state == "starting":
            self._look()

    def terminate(self) -> None:
        if self._child is not None:
            self._child.terminate()

    @property
    def lives(self) -> bool:
        return self._child is not None and self._child.exit_code() is None

    def end(self) -> None:
        """It is over, for the part and all that it left."""
        if self._child is not None:
            self._child.kill()
        self._child = None
        self._become("stopped")

    def _look(self) -> None:
        if self.part.ready():
            self.has_served = True
            self._become("ready")
        elif self._clock.monotonic() - self._since > self.part.start_limit_s:
            self._died(None, f"did not serve within {self.part.start_limit_s:.0f} s")

    def _died(self, code: int | None, what: str) -> None:
        served_s = self._clock.monotonic() - self._since if self.state == "ready" else 0.0
        if self._child is not None:
            self._child.kill()  # and whatever it left in its group
        self._child = None
        self.last_exit = code
        self._deaths = backoff.deaths_in_a_row(self._deaths, served_s)
        if not self.has_served and (self._deaths >= DEATHS_BEFORE_GIVING_UP or code == CANNOT_RUN_CODE):
            self._become("stopped")
            raise failure(self.part, what)
        self._next_start = self._clock.monotonic() + backoff.delay_s(self._deaths)
        self._become("restarting")

    def _become(self, state: State) -> None:
        self.state = state
        self._since = self._clock.monotonic()


class Supervisor:
    """All parts. `groups` are started in order, the next one when all of the one before serve."""

    def __init__(
        self,
        groups: Sequence[Sequence[Part]],
        stop_order: Sequence[Sequence[str]],
        spawn: Callable[[Part], Running],
        clock: Clock,
    ) -> None:
        """`stop_order`: names of parts that stop together, batch after batch; parts not named come last."""
        self._groups = [[Member(part, spawn, clock) for part in group] for group in groups]
        self._stop_order = stop_order
        self._clock = clock

    @property
    def members(self) -> list[Member]:
        return [member for group in self._groups for member in group]

    def serves(self, name: str) -> bool:
        return any(member.part.name == name and member.state == "ready" for member in self.members)

    def tick(self) -> None:
        """Move every part one step on.

        Raises:
            PartFailed: one cannot come up; the caller stops the rest.
        """
        for group in self._groups:
            for member in group:
                if member.state == "waiting":
                    member.start()
                member.tick()
            if not all(member.has_served for member in group):
                return  # the first start: the later groups need this one

    def stop(self, pause: Callable[[], bool]) -> None:
        """Stop all, in order, each within its own limit.

        `pause` is called between two looks: it lets a moment pass, and says False to kill the rest at once.
        """
        patient = True
        for batch in self._stop_batches():
            deadline = self._clock.monotonic() + max(member.part.stop_limit_s for member in batch)
            for member in batch:
                member.terminate()
            while patient and self._clock.monotonic() < deadline and any(member.lives for member in batch):
                patient = pause()
            for member in batch:
                member.end()

    def _stop_batches(self) -> list[list[Member]]:
        by_name = {member.part.name: member for member in self.members}
        batches = [[by_name.pop(name) for name in names] for names in self._stop_order]
        return [batch for batch in [*batches, list(by_name.values())] if batch]
