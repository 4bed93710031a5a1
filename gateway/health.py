"""Is this gateway alive, and can it serve? `/healthz`, `/readyz` and `/metrics`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from gateway.dispatch import Pool
from gateway.media_pools import MediaPools
from infra.lifecycle import Life
from infra.metrics import CONTENT_TYPE, Metrics

# Raises when the service cannot be reached.
Check = Callable[[], Awaitable[Any]]
CHECK_S = 2.0
OK = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """`checks` says "ok", or what is wrong, for each thing this gateway cannot serve without.

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

    async def readiness(self) -> Readiness:
        answers = await asyncio.gather(*(_answer(check) for check in self._services.values()))
        checks = dict(zip(self._services, answers, strict=True))
        for pool in self._pools:
            checks[f"model {pool.model}"] = OK if pool.workers else "no LLM worker serves it"
        if self._life.stopping:
            checks["gateway"] = "shutting down"
        pools = {pool: _worked_by(self._media_pools.workers(pool)) for pool in self._media_pools}
        degraded = [pool for pool in pools if not self._media_pools.workers(pool)]
        return Readiness(all(answer == OK for answer in checks.values()), checks, pools, degraded)


async def _answer(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_S):
            await check()
    except TimeoutError:
        return f"no answer within {CHECK_S:g} s"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"
    return OK


def _worked_by(workers: int | None) -> str:
    if workers is None:
        return "not known: Redis does not answer"
    return f"{OK}: {workers} worker{'s' * (workers > 1)}" if workers else "nobody works here"


def routes(health: Health, metrics: Metrics) -> list[HTTPRouteHandler]:
    @get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @get("/readyz")
    async def readyz() -> Response[Readiness]:
        readiness = await health.readiness()
        return Response(readiness, status_code=200 if readiness.ready else 503)

    @get("/metrics", sync_to_thread=False)
    def page() -> Response[bytes]:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return [healthz, readyz, page]
