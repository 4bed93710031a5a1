"""The table of policies, and the one way to name one: `name` or `name:key=value,key=value`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from schemas.steering import Ask, Choice, WorkerView
from topics.steering import rivals
from topics.steering.affinity import AffinityParams, affinity
from topics.steering.scorers import SCORERS

Decide = Callable[[Ask, Sequence[WorkerView]], Choice]
P = TypeVar("P", bound=msgspec.Struct)


class UnknownPolicy(ValueError):
    """A policy, parameter or weight that does not exist; the message says what does."""


class Policy(msgspec.Struct, frozen=True):
    """A decision, bound to its parameters."""

    name: str
    decide: Decide
    approximate: bool = False  # reads the record of own decisions in place of the engines' events
    affinity: AffinityParams | None = None  # set when Redis itself can decide

    def blind(self, ask: Ask) -> bool:
        """Its choice for this request does not depend on what the workers have to do."""
        return self.name in ("round_robin", "random") or (self.name == "session" and bool(ask.session))


# kv 3, queue 2 is the published configuration taken literally: no scorer of it knows prefixes.
WEIGHTS: dict[str, dict[str, float]] = {
    "weighted": {"prefix": 3, "queue": 2, "kv": 2},
    "weighted_approximate": {"prefix": 3, "queue": 2, "kv": 2},
    "weighted_active": {"prefix": 3, "queue": 2, "kv": 2, "active": 2},
    "anchor": {"kv": 3, "queue": 2},
}
PLAIN: dict[str, Decide] = {
    "least_load": rivals.least_load,
    "round_robin": rivals.round_robin,
    "random": rivals.random,
    "session": rivals.session,
}
NAMES = ("affinity", *WEIGHTS, "affinity_filter", *PLAIN)


def parse_policy(text: str) -> Policy:
    """Read a policy as written in a setting.

    Raises:
        UnknownPolicy: naming what is wrong and what is allowed.
    """
    name, _, rest = text.strip().partition(":")
    given = _pairs(name, rest)
    if name == "affinity":
        params = _params(name, given, AffinityParams)
        return Policy(name, lambda ask, views: affinity(ask, views, params), affinity=params)
    if name == "affinity_filter":
        preset = _params(name, given, rivals.FilterParams)
        return Policy(name, lambda ask, views: rivals.affinity_filter(ask, views, preset))
    if name in WEIGHTS:
        weights = _weights(name, given)
        return Policy(name, lambda ask, views: rivals.weighted(ask, views, weights), name.endswith("approximate"))
    if name in PLAIN:
        if given:
            raise UnknownPolicy(f"steering policy {name!r} takes no weights or parameters, got {', '.join(given)}")
        return Policy(name, PLAIN[name])
    raise UnknownPolicy(f"unknown steering policy {name!r}; known: {', '.join(NAMES)}")


def _pairs(name: str, rest: str) -> dict[str, float]:
    pairs: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key in pairs:
            raise UnknownPolicy(f"steering policy {name!r}: expected key=number once each, got {part!r}")
        try:
            pairs[key] = float(value)
        except ValueError:
            raise UnknownPolicy(f"steering policy {name!r}: {key} is not a number: {value!r}") from None
        if not 0 <= pairs[key] < float("inf"):
            raise UnknownPolicy(f"steering policy {name!r}: {key} must be a finite number >= 0, got {value}")
    return pairs


def _weights(name: str, given: Mapping[str, float]) -> Mapping[str, float]:
    """Weights given replace the preset's as a whole, so that what is read is what runs."""
    for key in given:
        if key not in SCORERS:
            raise UnknownPolicy(f"steering policy {name!r}: {key!r} is no scorer; scorers: {', '.join(SCORERS)}")
    if given and not any(given.values()):
        raise UnknownPolicy(f"steering policy {name!r}: every weight is 0")
    return given or WEIGHTS[name]


def _params(name: str, given: Mapping[str, float], kind: type[P]) -> P:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        allowed = ", ".join(kind.__struct_fields__)
        raise UnknownPolicy(f"steering policy {name!r}: {error}; parameters: {allowed}") from None
