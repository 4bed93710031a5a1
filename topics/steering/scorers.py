"""The scorers of the public routers, exact: each maps the candidates to [0, 1], higher is better."""

from collections.abc import Callable, Sequence

from schemas.steering import Ask, WorkerView

Scorer = Callable[[Ask, Sequence[WorkerView]], list[float]]

# Tokens at which the token-load scorer reaches 0.
TOKEN_LOAD_TOKENS = 4_194_304


def prefix(ask: Ask, views: Sequence[WorkerView]) -> list[float]:
    """Share of the prompt's blocks that the worker holds."""
    total = ask.prompt_blocks
    return [view.matched_blocks / total if total else 0.0 for view in views]


def queue(ask: Ask, views: Sequence[WorkerView]) -> list[float]:
    """Min-max over waiting requests: one more than the others is already the full distance."""
    waiting = [view.waiting for view in views]
    least, most = min(waiting), max(waiting)
    return [1.0 if most == least else (most - count) / (most - least) for count in waiting]


def kv(ask: Ask, views: Sequence[WorkerView]) -> list[float]:
    """Room by the engine's gauge, which does not see what is cached."""
    return [1.0 - view.kv_usage for view in views]


def active(ask: Ask, views: Sequence[WorkerView]) -> list[float]:
    """Requests in flight by the router's own count; idle workers are all best."""
    most = max(view.inflight for view in views)
    return [1.0 if not view.inflight else (most - view.inflight) / most for view in views]


def token_load(ask: Ask, views: Sequence[WorkerView]) -> list[float]:
    """Prompt tokens it has to compute, this request's included."""
    return [1.0 - min(load, TOKEN_LOAD_TOKENS) / TOKEN_LOAD_TOKENS for load in looked_ahead_tokens(ask, views)]


def looked_ahead_tokens(ask: Ask, views: Sequence[WorkerView]) -> list[int]:
    return [view.uncached_tokens + max(0, ask.prompt_tokens - view.matched_blocks * ask.block_tokens) for view in views]


SCORERS: dict[str, Scorer] = {
    "prefix": prefix,
    "queue": queue,
    "kv": kv,
    "active": active,
    "token_load": token_load,
}
