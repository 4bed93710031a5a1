"""Is this gateway alive, and can it serve? `/healthz`, `/readyz` and `/metrics`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler

from gateway.dispatch import Pool
from gateway.media_pools import MediaPools
from gateway.siblings import Siblings
from infra.faults import Missing, Refused, Unavailable
from infra.lifecycle import Life
from infra.metrics import CONTENT_TYPE, Metrics

log = logging.getLogger(__name__)

# Raises a PortFault when the service cannot be used.
Check = Callable[[], Awaitable[Any]]
CHECK_S = 2.0
OK = "ok"
SILENT = "does not answer"


class Readiness(msgspec.Struct, frozen=True):
    """`checks` says "ok", or what kind of thing is wrong, for each thing this gateway cannot serve without. Anybody may
    read it: addresses and the words of services are for the log.

    `pools` says who works in those of encoders and decoders. `degraded` names the ones where nobody does: requests that
    need them wait or fail, all others are served, so that this is no reason to send clients elsewhere.
    """

    ready: bool
    checks: dict[str, str]
    pools: dict[str, str] = {}
    degraded: list[str] = []


class Health:
    """`services` are checked when asked; a model is ready when somebody runs it."""

    def __init__(self, services: Mapping[str, Check], pools: list[Pool], media_pools: MediaPools, life: Life) -> None:
        self._services = services
        self._pools = pools
        self._media_pools = media_pools
        self._life = life
        self._logged: dict[str, str] = {}  # what is wrong with which service, as far as the log knows

    async def readiness(self) -> Readiness:
        answers = await asyncio.gather(*(self._answer(name, check) for name, check in self._services.items()))
        checks = dict(zip(self._services, answers, strict=True))
        for pool in self._pools:
            checks[f"model {pool.model}"] = OK if pool.workers else "no LLM worker serves it"
        if self._life.stopping:
            checks["gateway"] = "shutting down"
        pools = {pool: _worked_by(self._media_pools.workers(pool)) for pool in self._media_pools}
        degraded = [pool for pool in pools if not self._media_pools.workers(pool)]
        return Readiness(all(answer == OK for answer in checks.values()), checks, pools, degraded)

    async def _answer(self, name: str, check: Check) -> str:
        detail = OK
        try:
            async with asyncio.timeout(CHECK_S):
                await check()
        except TimeoutError:
            answer, detail = SILENT, f"no answer within {CHECK_S:g} s"
        except Exception as error:  # noqa: BLE001  # whatever it is, the log has it and a class of it is the answer
            answer, detail = _class_of(error), f"{type(error).__name__}: {error}"
        else:
            answer = OK
        self._log(name, answer, detail)
        return answer

    def _log(self, name: str, answer: str, detail: str) -> None:
        """Once for each change: who asks may ask often."""
        before, self._logged[name] = self._logged.get(name, OK), answer
        if answer == before:
            return
        if answer == OK:
            log.info("readiness: %s is ok again", name)
        else:
            log.warning("readiness: %s %s: %s", name, answer, detail)


def _class_of(error: Exception) -> str:
    match error:
        case Unavailable():
            return SILENT
        case Refused():
            return "refuses"
        case Missing():
            return "lacks what it should have"
    return "fails"


def _worked_by(workers: int | None) -> str:
    if workers is None:
        return "not known: Redis does not answer"
    return f"{OK}: {workers} worker{'s' * (workers > 1)}" if workers else "nobody works here"


def routes(health: Health, metrics: Metrics, siblings: Siblings) -> list[HTTPRouteHandler]:
    @get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @get("/readyz")
    async def readyz() -> Response[Readiness]:
        readiness = await health.readiness()
        return Response(readiness, status_code=200 if readiness.ready else 503)

    @get("/metrics")
    async def page(request: Request[Any, Any, Any]) -> Response[bytes]:
        own = metrics.render()
        told = await siblings.metrics(own) if siblings.answer_for(request.scope) else own
        return Response(told, media_type=CONTENT_TYPE)

    return [healthz, readyz, page]
