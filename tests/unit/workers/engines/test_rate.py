from infra.clock import ManualClock
from workers.engines.rate import WINDOW_S, TokenRate


def test_tokens_count_until_they_are_older_than_the_window() -> None:
    clock = ManualClock()
    rate = TokenRate(clock)
    rate.add(10)
    clock.advance(WINDOW_S / 2)
    rate.add(20)
    assert rate.per_s() == 30 / WINDOW_S
    clock.advance(WINDOW_S / 2 + 0.1)
    assert rate.per_s() == 20 / WINDOW_S
    clock.advance(WINDOW_S)
    assert rate.per_s() == 0.0
