"""Steering: which worker gets a job, and which of its partitions. Pure; the caller produces the job there."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from infra.ports import PoolView

Reason = Literal["least_loaded", "no_live_worker"]


class Choice(msgspec.Struct, frozen=True):
    partition: int
    worker: str  # empty: nobody is there; whoever comes will own the partition
    reason: Reason


def choose(view: PoolView, partitions: int, inflight: Mapping[str, int], ticket: int) -> Choice:
    """The least-loaded worker; in turn among equals, and among its partitions.

    `inflight` is what this gateway has sent to each worker and not seen end: beats are up to half a second old, and
    without it a burst would all go to one. `ticket` counts up by one per call.
    """
    owned = _partitions_of_the_living(view, partitions)
    if not owned:
        return Choice(ticket % partitions, "", "no_live_worker")
    load = {name: _load(view, name) + inflight.get(name, 0) for name in owned}
    least = min(load.values())
    equals = sorted(name for name in owned if load[name] == least)
    turn, worker = ticket // len(equals), equals[ticket % len(equals)]
    return Choice(owned[worker][turn % len(owned[worker])], worker, "least_loaded")


def _partitions_of_the_living(view: PoolView, partitions: int) -> dict[str, list[int]]:
    """Only owners whose last beat is of the same life: a partition of a dead one moves to somebody else soon."""
    owned: dict[str, list[int]] = {}
    for partition, owner in sorted(view.owners.items()):
        beat = view.beats.get(owner.worker)
        if partition < partitions and beat is not None and beat.epoch == owner.epoch:
            owned.setdefault(owner.worker, []).append(partition)
    return owned


def _load(view: PoolView, worker: str) -> int:
    beat = view.beats[worker]
    return beat.running + beat.waiting
