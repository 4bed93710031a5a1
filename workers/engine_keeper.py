"""Keeps the engine alive: restarts it in place when it died, and makes intake wait meanwhile."""

import asyncio
import logging

from infra.metrics import Metrics
from workers.engine import Engine

log = logging.getLogger(__name__)

MAX_RESTARTS_IN_A_ROW = 3
RETRY_S = 2.0


class EngineKeeper:
    """One restart per death, however many jobs notice it."""

    def __init__(self, engine: Engine, metrics: Metrics, model: str) -> None:
        self._engine = engine
        self._metrics = metrics
        self._model = model
        self._ready = asyncio.Event()
        self._ready.set()
        self._dead = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def ready(self) -> None:
        await self._ready.wait()

    def died(self) -> None:
        """Told by a job whose run ended with EngineDied."""
        self._ready.clear()
        self._dead.set()

    async def run(self) -> None:
        """Serve restarts for ever; raises the last error when the engine does not come back."""
        while True:
            await self._dead.wait()
            self._dead.clear()
            log.error("the engine died; restarting it in place")
            await self._restart()
            self._metrics.engine_restarted(self._model)
            self._dead.clear()  # jobs that noticed the same death while the restart ran
            self._ready.set()

    async def _restart(self) -> None:
        for left in reversed(range(MAX_RESTARTS_IN_A_ROW)):
            try:
                return await self._engine.restart(log.info)
            except Exception as error:  # whatever the library raises
                log.error("engine restart failed: %s", error)
                if not left:
                    raise
                await asyncio.sleep(RETRY_S)
