"""Dispatchers for tests: without an index, so that nothing needs Redis."""

from typing import Any

from infra.clock import Clock, SystemClock
from topics.steering.dispatch import Dispatcher
from topics.steering.placer import LeastLoadedPlacer, Placer
from topics.steering.releases import Releases


class Released:
    """Remembers what was given back."""

    def __init__(self) -> None:
        self.tickets: list[str] = []

    async def __call__(self, first_tokens: object, ended: Any) -> int:
        self.tickets += ended
        return len(ended)


def dispatcher(
    model: str, placer: Placer, producer: Any, released: Released | None = None, clock: Clock | None = None
) -> Dispatcher:
    return Dispatcher(model, placer, producer, Releases(released or Released(), clock or SystemClock()))


def unsteered(model: str, partitions: int, producer: Any) -> Dispatcher:
    return dispatcher(model, LeastLoadedPlacer(partitions), producer)
