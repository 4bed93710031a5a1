"""Ours: warm prefixes stay home, cold ones go where there is room, hot ones earn a second home.

Every worker is priced in seconds: what is queued there, what it would have to compute for this prompt, and how much
its running sequences slow a step. `infra/lua/affinity.lua` is the same function inside Redis; a property test keeps
the two equal, so change both.
"""

from collections.abc import Sequence

import msgspec

from schemas.steering import Alternative, Ask, Choice, WorkerView


class AffinityParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All flat: the ranges that make no difference are in the comments."""

    decode_weight: float = 0.1  # of what its sequences add to the answer's time, as load; 0.05-0.3
    answer_weight: float = 0.03  # of the answer's time on an idle worker: keeps from slow ones; 0.02-0.04
    holder_share: float = 0.8  # of the best match makes a worker a holder; 0.5-0.95
    cold_share: float = 0.3  # of the prompt; a best match below it is no match; 0-0.5
    family_share: float = 0.2  # a prefix with this share of a worker's requests moves at once, a rarer one later
    fresh_share: float = 0.1  # a worker with this much unused memory earns homes at once


class _Priced(msgspec.Struct, frozen=True):
    view: WorkerView
    own_s: float  # computing what it lacks of this prompt
    cost_s: float  # own_s + what is there already


def affinity(ask: Ask, views: Sequence[WorkerView], params: AffinityParams) -> Choice:
    """Choose among at least one live worker."""
    priced = [_price(ask, view, params) for view in views]
    cheapest = min(priced, key=_cost)
    best_match = max(view.matched_blocks for view in views)
    if best_match <= params.cold_share * ask.prompt_blocks:
        chosen, reason = _roomiest(priced, cheapest), "cold"
    else:
        holders = [one for one in priced if one.view.matched_blocks >= params.holder_share * best_match]
        home = min(holders, key=_cost)
        if home.view is cheapest.view:
            chosen, reason = home, "home"
        elif home.cost_s - cheapest.cost_s > _moving_price(ask, home, cheapest, params):
            chosen, reason = cheapest, "second_home"
        else:
            chosen, reason = home, "stay"
    return Choice(
        chosen.view.worker,
        reason,
        chosen.view.matched_blocks,
        chosen.cost_s,
        [Alternative(one.view.worker, one.cost_s) for one in priced if one is not chosen],
    )


def _cost(one: _Priced) -> float:
    return one.cost_s


def _price(ask: Ask, view: WorkerView, params: AffinityParams) -> _Priced:
    own_s = (ask.prompt_tokens - view.matched_blocks * ask.block_tokens) / view.prefill_tokens_per_s
    queued_s = view.uncached_tokens / view.prefill_tokens_per_s
    answer_s = params.answer_weight * ask.expected_output_tokens * view.step_base_s
    decode_s = params.decode_weight * ask.expected_output_tokens * view.step_per_sequence_s * view.inflight
    return _Priced(view, own_s, queued_s + decode_s + answer_s + own_s)


def _roomiest(priced: Sequence[_Priced], cheapest: _Priced) -> _Priced:
    """Among those not much dearer than the cheapest: where the prompt evicts least."""
    bound_s = cheapest.cost_s + cheapest.own_s
    near = [one for one in priced if one.cost_s <= bound_s]
    return max(near, key=lambda one: (one.view.unused_blocks, -one.view.referenced_blocks))


def _moving_price(ask: Ask, home: _Priced, new: _Priced, params: AffinityParams) -> float:
    """How much cheaper the new worker has to be: the recomputation, twice if it evicts, and more for rare prefixes."""
    recompute_s = max(0.0, new.own_s - home.own_s)
    if not recompute_s:
        return 0.0
    evicts = new.view.unused_blocks < ask.prompt_blocks - new.view.matched_blocks
    return recompute_s * (2.0 if evicts else 1.0) * _stick(home.view, new.view, params)


def _stick(home: WorkerView, new: WorkerView, params: AffinityParams) -> float:
    if new.unused_blocks >= params.fresh_share * new.total_blocks:
        return 1.0
    share = home.family_inflight / home.inflight if home.inflight else 0.0
    return max(1.0, params.family_share / share) if share else float("inf")
