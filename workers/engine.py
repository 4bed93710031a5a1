"""What a pool needs of an engine: five verbs. Engines know nothing of topics, Redis or requests' lives."""

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

import msgspec

from schemas.events import FinishReason, TokenLogprob
from schemas.jobs import GenerateJob


class Delta(msgspec.Struct, frozen=True):
    """New output of one choice. `text` holds whole characters only."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] | None = None


class End(msgspec.Struct, frozen=True):
    """All choices are complete; nothing follows."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


Step = Delta | End


class Load(msgspec.Struct, frozen=True):
    """How full the engine is, for beats and metrics. Cheap to ask; never blocks."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0  # 0..1
    tokens_per_s: float = 0.0


class EngineDied(Exception):
    """The engine is gone; the job may go again once it is back."""


class Refused(Exception):
    """This job can never run here (length, token id, grammar); the client must change it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Engine(Protocol):
    """Life: start, then any number of concurrent `run`, then close. After a death: restart, then as before."""

    name: str  # "vllm", "stub", ...; shown with every figure
    slots: int  # jobs it takes at once

    async def start(self, report: Callable[[str], None]) -> None:
        """Load and warm up; `report` gets a line per phase. Returns when a real request has run."""
        ...

    def run(self, job: GenerateJob) -> AsyncGenerator[Step]:
        """Run one job. Closing the generator aborts it inside the engine.

        Raises:
            Refused: before the first step. EngineDied: at any time.
        """
        ...

    def load(self) -> Load: ...

    async def restart(self, report: Callable[[str], None]) -> None:
        """Replace a dead engine. Safe to call once per death; runs that were open have raised EngineDied."""
        ...

    async def close(self) -> None:
        """Abort what runs and free everything; harmless when repeated."""
        ...
