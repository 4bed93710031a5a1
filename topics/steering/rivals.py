"""Policies to compare with: the weighted blends and the affinity filter of the public routers, and the simple ones."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from schemas.steering import Alternative, Ask, Choice, WorkerView
from topics.steering.scorers import SCORERS, looked_ahead_tokens, token_load


class FilterParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The published preset of the affinity filter."""

    match: float = 0.8  # share of the prompt that makes a worker sticky
    valve_s: float = 18.0  # stickiness ends when the sticky ones are this much slower to a first token
    prefill_tokens_per_s: float = 15_928.0  # one figure for all workers, as published


def weighted(ask: Ask, views: Sequence[WorkerView], weights: Mapping[str, float]) -> Choice:
    """Highest weighted sum of clamped scores; ties at random."""
    totals = [0.0] * len(views)
    for name, weight in weights.items():
        for index, score in enumerate(SCORERS[name](ask, views)):
            totals[index] += weight * min(1.0, max(0.0, score))
    best = max(totals)
    return _choice(ask, views, [best - total for total in totals], "score")


def affinity_filter(ask: Ask, views: Sequence[WorkerView], params: FilterParams) -> Choice:
    """Only those that hold the prompt, unless they are too far behind; among them the least token load."""
    total = ask.prompt_blocks
    sticky = [view for view in views if total and view.matched_blocks / total >= params.match]
    candidates, reason = (sticky, "sticky") if sticky else (views, "no_sticky")
    others = [view for view in views if view not in sticky]
    if sticky and others:
        behind = min(v.uncached_tokens for v in sticky) - min(v.uncached_tokens for v in others)
        if behind / params.prefill_tokens_per_s > params.valve_s:
            candidates, reason = views, "valve"
    return _choice(ask, candidates, [1.0 - score for score in token_load(ask, candidates)], reason)


def least_load(ask: Ask, views: Sequence[WorkerView]) -> Choice:
    """Fewest requests in flight, then fewest tokens to compute; blind to what is cached."""
    least = min(view.inflight for view in views)
    idle = [view for view in views if view.inflight == least]
    return _choice(ask, idle, [float(tokens) for tokens in looked_ahead_tokens(ask, idle)], "least_load")


def round_robin(ask: Ask, views: Sequence[WorkerView]) -> Choice:
    return _picked(views[ask.turn % len(views)], "turn")


def random(ask: Ask, views: Sequence[WorkerView]) -> Choice:
    return _picked(views[int(ask.draw * len(views))], "draw")


def session(ask: Ask, views: Sequence[WorkerView]) -> Choice:
    """Rendezvous hashing: a session keeps its worker while that worker lives, and needs no table."""
    if not ask.session:
        return least_load(ask, views)
    return _picked(max(views, key=lambda view: _rendezvous(ask.session, view.worker)), "session")


def _rendezvous(session_id: str, worker: str) -> bytes:
    return blake2b(f"{session_id}\0{worker}".encode(), digest_size=8).digest()


def _picked(view: WorkerView, reason: str) -> Choice:
    return Choice(view.worker, reason, view.matched_blocks)


def _choice(ask: Ask, views: Sequence[WorkerView], costs: Sequence[float], reason: str) -> Choice:
    """The cheapest; among equals the one that the draw points at."""
    least = min(costs)
    equals = [index for index, cost in enumerate(costs) if cost <= least]
    chosen = equals[int(ask.draw * len(equals))]
    alternatives = [Alternative(v.worker, c) for i, (v, c) in enumerate(zip(views, costs, strict=True)) if i != chosen]
    return Choice(views[chosen].worker, reason, views[chosen].matched_blocks, least, alternatives)
