"""`triptych up`: the whole local stack, from nothing to a served model, until it is told to stop."""

import http.client
import os
import time
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console

from cli import models, topic_admin
from cli import served as served_models
from cli.errors import CommandFailed
from cli.gateway_client import GatewayClient, GatewayUnreachable
from cli.local import broker, interrupts, ports, stack, state
from cli.local.interrupts import Interrupts
from cli.local.process import Child
from cli.local.stack import Plan, UpOptions
from cli.local.supervisor import Supervisor
from cli.screen import Screen, View, screen_for
from cli.traffic import RateMeter, Rates, totals
from infra.clock import Clock
from infra.settings import Settings

TICK_S = 0.1
ASK_EVERY_S = 1.0


def check(options: UpOptions, host: str) -> None:
    """Everything that can be known to be wrong before the first process starts.

    Raises:
        CommandFailed
    """
    running = state.running(options.home)
    if running is not None:
        names = ", ".join(sorted(state.ours_alive(running)))
        raise CommandFailed(f"a stack runs here already ({names}); stop it first: triptych down --home {options.home}")
    if ports.taken(options.port, host):
        raise CommandFailed(f"port {options.port} on {host} is taken; choose another: triptych up --port N")


def keep_last_logs(logs: Path) -> None:
    """Each run writes fresh logs; those of the run before stay beside them as *.log.1."""
    for log in logs.glob("*.log"):
        log.replace(log.with_name(f"{log.name}.1"))


class Up:
    """One life of the local stack."""

    def __init__(self, options: UpOptions, plan: Plan, clock: Clock, screen: Screen, interrupts: Interrupts) -> None:
        self._options = options
        self._plan = plan
        self._clock = clock
        self._screen = screen
        self._interrupts = interrupts
        self._supervisor = Supervisor(plan.groups, plan.stop_order, Child, clock)
        self._gateway = GatewayClient(plan.addresses.url, timeout_s=1.0)
        self._meter = RateMeter(clock)
        self._view = View(self._supervisor.members, Rates(), serves=False)
        self._asked_at = clock.monotonic()
        self._started_at = clock.now()
        self._written: dict[str, int] = {}

    def run(self) -> None:
        """Until the first signal; then stops everything, whatever happened.

        Raises:
            PartFailed: a part cannot come up.
        """
        try:
            while not self._interrupts.count:
                self._supervisor.tick()
                self._ask_gateway()
                self._describe()
                self._show()
                time.sleep(TICK_S)
        finally:
            self._stop()

    def _ask_gateway(self) -> None:
        if not self._supervisor.serves(stack.GATEWAY):
            self._view = msgspec.structs.replace(self._view, serves=False)
            return
        now = self._clock.monotonic()
        if now - self._asked_at < ASK_EVERY_S:
            return
        self._asked_at = now
        try:
            status, _ = self._gateway.get("/readyz")
            _, exposition = self._gateway.get("/metrics")
        except GatewayUnreachable:
            self._view = msgspec.structs.replace(self._view, serves=False)
            return
        rates = self._meter.read(totals(exposition.decode()))
        self._view = msgspec.structs.replace(self._view, serves=status == http.client.OK, rates=rates)

    def _describe(self) -> None:
        """Keep stack.json true: process ids change when parts are restarted."""
        pids = {member.part.name: member.pid for member in self._supervisor.members if member.pid is not None}
        if pids == self._written:
            return
        self._written = pids
        at = self._plan.addresses
        described = state.StackState(
            url=at.url,
            bootstrap=at.bootstrap,
            redis=at.redis,
            s3=at.s3,
            broker=self._plan.decision.kind,
            started_at=self._started_at,
            supervisor=os.getpid(),
            pids=pids,
            births=state.births_of(pids),
            models=",".join(self._plan.models),
        )
        state.write(self._options.home, described)

    def _stop(self) -> None:
        self._view = msgspec.structs.replace(self._view, stopping=True)
        self._show()
        asked = self._interrupts.count

        def pause() -> bool:
            self._show()
            time.sleep(TICK_S)
            return self._interrupts.count <= asked

        self._supervisor.stop(pause)
        state.remove(self._options.home)
        self._show()

    def _show(self) -> None:
        # A terminal that is gone (closed window, broken pipe) must not keep us from running or stopping the parts.
        with suppress(OSError):
            self._screen.show(self._view)


def run(options: UpOptions, settings: Settings, clock: Clock, console: Console) -> None:
    """Bring the stack up, keep it up, take it down.

    Raises:
        CommandFailed: with what to do, or the end of the log that tells.
    """
    check(options, settings.host)
    served = served_models.chosen(options.models, settings, console, real_media=options.media_engine == "real")
    for manifest in served:
        models.fetch(manifest, settings, console)
    with console.status("looking for a broker") if console.is_terminal else nullcontext():
        decision = broker.broker_kind(options.broker)
    keep_last_logs(options.home / "logs")
    topics_exist = partial(topic_admin.topics_exist, settings, served)
    with interrupts.counted() as signals:
        plan = stack.plan(options, settings, served, decision, topics_exist)
        with screen_for(plan, [one.id for one in served], console, clock) as screen:
            Up(options, plan, clock, screen, signals).run()
