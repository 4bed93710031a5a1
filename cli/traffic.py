"""Requests and tokens per second, from the counters on the gateway's /metrics."""

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from infra.clock import Clock

REQUESTS = "triptych_requests_total"
TOKENS = "triptych_tokens_total"


class Totals(msgspec.Struct, frozen=True):
    requests: float
    tokens: float  # generated ones; prompts are read, not made


class Rates(msgspec.Struct, frozen=True):
    requests_total: int = 0
    requests_per_s: float = 0.0
    tokens_per_s: float = 0.0


def totals(exposition: str) -> Totals:
    """The sums over all labels of the two counters; 0 for one that is not there yet."""
    requests = tokens = 0.0
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == REQUESTS:
                requests += sample.value
            elif sample.name == TOKENS and sample.labels.get("kind") == "completion":
                tokens += sample.value
    return Totals(requests, tokens)


class RateMeter:
    """Turns totals read now and then into rates between the last two readings."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[float, Totals] | None = None

    def read(self, now: Totals) -> Rates:
        at = self._clock.monotonic()
        before, self._last = self._last, (at, now)
        if before is None or at <= before[0]:
            return Rates(int(now.requests))
        passed_s = at - before[0]
        # A restarted gateway counts from zero again: no negative rates.
        requests, tokens = max(0.0, now.requests - before[1].requests), max(0.0, now.tokens - before[1].tokens)
        return Rates(int(now.requests), requests / passed_s, tokens / passed_s)
