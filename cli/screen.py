"""What `triptych up` shows: one live table on a terminal, a line for every change where there is none."""

import re
from collections.abc import Sequence

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.local.process import log_tail
from cli.local.stack import Plan
from cli.local.supervisor import Member, State
from cli.traffic import Rates
from infra.clock import Clock

STYLES = {"waiting": "dim", "starting": "yellow", "ready": "green", "restarting": "red", "stopped": "dim"}
REDRAW_S = 0.5
# Enough to find our own last word under the warnings of the libraries that load a model.
NOTE_LINES = 40
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OURS = re.compile(r"^\S+ \S+ [A-Z]+ +(?:gateway|workers|topics|infra)[\w.]*: (.+)$", re.MULTILINE)


class View(msgspec.Struct, frozen=True):
    """One moment of the stack, as shown."""

    members: Sequence[Member]
    rates: Rates
    serves: bool  # the gateway says that a request can be answered
    stopping: bool = False


def first_request(url: str, model: str) -> str:
    """A line to copy."""
    body = f'{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "What is gravity?"}}]}}'
    return f"curl -N {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"


def broker_label(plan: Plan) -> str:
    if plan.decision.kind == "embedded":
        return f"embedded, memory-only: nothing on it survives a restart ({plan.decision.why})"
    if plan.decision.kind == "external":
        return f"{plan.decision.address} ({plan.decision.why})"
    return f"Apache Kafka ({plan.decision.why})"


def note(member: Member) -> str:
    """What a part on its way last said, or how it ended."""
    if member.state == "starting":
        return last_words(log_tail(member.part.log, NOTE_LINES))
    if member.state == "restarting":
        return "does not serve" if member.last_exit is None else f"ended with code {member.last_exit}"
    return ""


def last_words(log: str) -> str:
    """The last line in the format of our own processes, without its head; else the last line of all."""
    lines = _ANSI.sub("", log)
    ours = _OURS.findall(lines)
    return str(ours[-1]) if ours else lines.rpartition("\n")[2]


class LiveScreen:
    """Redraws itself; to be used as a context."""

    def __init__(self, plan: Plan, models: Sequence[str], console: Console, clock: Clock) -> None:
        self._plan = plan
        self._models = models
        self._clock = clock
        self._drawn: tuple[float, list[State]] = (0.0, [])
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> "LiveScreen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, view: View) -> None:
        """Draws a change at once, and otherwise no more often than an eye needs."""
        now, states = self._clock.monotonic(), [member.state for member in view.members]
        if states == self._drawn[1] and now - self._drawn[0] < REDRAW_S:
            return
        self._drawn = now, states
        self._live.update(Group(self._table(view), *self._footer(view)), refresh=True)

    def _table(self, view: View) -> Table:
        table = Table(title=f"Triptych  ·  broker: {broker_label(self._plan)}", title_justify="left", expand=True)
        table.add_column("part", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("port", justify="right")
        table.add_column("restarts", justify="right")
        table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis", style="dim")
        for member in view.members:
            state = Text(member.state, STYLES[member.state])
            table.add_row(member.part.name, state, str(member.part.port), str(member.restarts), Text(note(member)))
        return table

    def _footer(self, view: View) -> list[RenderableType]:
        if view.stopping:
            return [Text("stopping: running answers may finish; Ctrl-C again stops at once", "yellow")]
        if not view.serves:
            return [Text(f"starting; logs: {self._plan.logs}", "yellow")]
        rates, url = view.rates, self._plan.addresses.url
        return [
            Text(f"serving {', '.join(self._models)} at {url}   API docs: {url}/docs"),
            Text(f"{rates.requests_total} requests   {rates.requests_per_s:.1f}/s   {rates.tokens_per_s:.1f} tokens/s"),
            Text(first_request(url, self._models[0]), "bold", overflow="fold"),
            Text("or: triptych chat      Ctrl-C stops all", "dim"),
        ]


class PlainScreen:
    """A line for each change, for logs and pipes."""

    def __init__(self, plan: Plan, models: Sequence[str], console: Console) -> None:
        self._plan = plan
        self._models = models
        self._console = console
        self._said: dict[str, str] = {}

    def __enter__(self) -> "PlainScreen":
        self._line(f"broker: {broker_label(self._plan)}")
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, view: View) -> None:
        if view.stopping:
            self._change("", "stopping: running answers may finish")
        for member in view.members:
            words = f"{member.part.name}: {member.state}, port {member.part.port}"
            if member.restarts:
                words += f", restarts {member.restarts}"
            extra = note(member)
            self._change(member.part.name, f"{words}: {extra}" if extra else words)
        if view.serves and not view.stopping:
            url = self._plan.addresses.url
            self._change("", f"serving {', '.join(self._models)} at {url}\n{first_request(url, self._models[0])}")

    def _change(self, key: str, words: str) -> None:
        if self._said.get(key) != words:
            self._said[key] = words
            self._line(words)

    def _line(self, words: str) -> None:
        self._console.print(words, markup=False, highlight=False, soft_wrap=True)


Screen = LiveScreen | PlainScreen


def screen_for(plan: Plan, models: Sequence[str], console: Console, clock: Clock) -> Screen:
    return LiveScreen(plan, models, console, clock) if console.is_terminal else PlainScreen(plan, models, console)
