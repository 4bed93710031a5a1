from cli.traffic import RateMeter, Rates, Totals, totals
from infra.clock import ManualClock
from infra.metrics import Metrics


def test_totals_add_up_models_and_outcomes_and_count_generated_tokens_only() -> None:
    metrics = Metrics()
    metrics.request_ended("a", "finished")
    metrics.request_ended("b", "failed")
    metrics.tokens("a", prompt=500, cached=100, completion=7)
    metrics.tokens("b", prompt=500, cached=100, completion=5)
    assert totals(metrics.render().decode()) == Totals(requests=2, tokens=12)


def test_an_exposition_without_our_counters_is_zero() -> None:
    assert totals("# nothing here\n") == Totals(0, 0)


def test_rates_are_between_the_last_two_readings() -> None:
    clock = ManualClock()
    meter = RateMeter(clock)
    assert meter.read(Totals(10, 100)) == Rates(requests_total=10)
    clock.advance(2.0)
    assert meter.read(Totals(14, 200)) == Rates(14, 2.0, 50.0)


def test_a_restarted_gateway_never_shows_a_negative_rate() -> None:
    clock = ManualClock()
    meter = RateMeter(clock)
    meter.read(Totals(10, 100))
    clock.advance(1.0)
    assert meter.read(Totals(1, 5)) == Rates(1, 0.0, 0.0)
