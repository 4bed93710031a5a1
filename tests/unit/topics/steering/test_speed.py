"""The learner, on traces of steps as engines make them."""

import random
from collections.abc import Iterable, Iterator

import pytest

from topics.steering.speed import MOST_OFF, Speed, SpeedLearner

TRUE = Speed(prefill_tokens_per_s=5_000.0, step_per_sequence_s=0.000_8, step_base_s=0.03)
Step = tuple[float, int, int]  # seconds, prefill tokens, sequences


def seconds(speed: Speed, prefill: int, sequences: int) -> float:
    return speed.step_base_s + prefill / speed.prefill_tokens_per_s + speed.step_per_sequence_s * sequences


def trace(shapes: Iterable[tuple[int, int]], speed: Speed = TRUE, noise: float = 0.05) -> Iterator[Step]:
    """Steps of these (prefill tokens, sequences), off by `noise` of their length."""
    rng = random.Random(7)
    for prefill, sequences in shapes:
        yield seconds(speed, prefill, sequences) * rng.gauss(1.0, noise), prefill, sequences


def ramp_up() -> list[tuple[int, int]]:
    """Sixty requests come one after the other: a prefill step each, a few decode steps in between."""
    return [shape for n in range(1, 61) for shape in [(900, n), *[(0, n)] * 6]]


def drain() -> list[tuple[int, int]]:
    """Sixty that came at once end one after the other."""
    return [(8_192, 60)] * 7 + [(0, n) for n in range(60, 0, -1) for _ in range(6)]


def mixed() -> list[tuple[int, int]]:
    """Any number of sequences, every fourth step with some of a prompt, in chunks and remainders."""
    rng = random.Random(3)
    return [(rng.choice([0, 0, 0, rng.randint(1, 8_192)]), rng.randint(1, 150)) for _ in range(400)]


def learned(steps: Iterable[Step], prior: Speed | None = None) -> Speed:
    learner = SpeedLearner(prior or Speed())
    for step in steps:
        learner.step(*step)
    return learner.speed()


def assert_is(speed: Speed, true: Speed, rel: float) -> None:
    assert speed.prefill_tokens_per_s == pytest.approx(true.prefill_tokens_per_s, rel=rel)
    assert speed.step_per_sequence_s == pytest.approx(true.step_per_sequence_s, rel=rel)
    assert speed.step_base_s == pytest.approx(true.step_base_s, rel=rel)


@pytest.mark.parametrize("shapes", [ramp_up(), drain(), mixed()], ids=["ramp_up", "drain", "mixed"])
@pytest.mark.parametrize("prior", [Speed(), Speed(200.0, 0.01, 0.1)], ids=["gpu", "cpu"])
def test_a_trace_with_noise_gives_all_three_within_a_tenth(shapes: list[tuple[int, int]], prior: Speed) -> None:
    assert_is(learned(trace(shapes), prior), TRUE, rel=0.1)


def test_a_worker_of_tens_of_milliseconds_a_sequence_is_learned_too() -> None:
    """A CPU: one sequence more doubles the step."""
    cpu = Speed(500.0, 0.02, 0.06)
    shapes = [(256, n) for n in (1, 2, 3) for _ in range(5)] + [(0, n) for n in range(8, 0, -1) for _ in range(20)]
    assert_is(learned(trace(shapes, cpu), Speed(200.0, 0.01, 0.1)), cpu, rel=0.1)


def test_a_few_steps_that_took_very_long_change_little() -> None:
    steps = list(trace(mixed() + ramp_up()))
    for at in (100, 400, 700):
        steps[at] = (60.0, *steps[at][1:])
    assert_is(learned(steps), TRUE, rel=0.1)


@pytest.mark.parametrize("burst", [1, 10])
def test_a_worker_that_is_stopped_half_of_the_time_is_half_as_fast(burst: int) -> None:
    """Stopped in every step for as long as it ran, or in every tenth for as long as all ten."""
    steps = []
    for number, (took, prefill, sequences) in enumerate(trace(mixed() * 3)):
        stopped = took * burst if number % burst == 0 else 0.0
        steps.append((took + stopped, prefill, sequences))
    half = Speed(TRUE.prefill_tokens_per_s / 2, TRUE.step_per_sequence_s * 2, TRUE.step_base_s * 2)
    rel = {1: 0.1, 10: 0.35}[burst]  # few and large: the mean itself is not known better
    assert_is(learned(steps), half, rel=rel)


def test_a_worker_that_becomes_slow_is_found_out() -> None:
    slow = Speed(TRUE.prefill_tokens_per_s / 3, TRUE.step_per_sequence_s * 3, TRUE.step_base_s * 3)
    assert_is(learned([*trace(mixed() * 5), *trace(mixed() * 5, slow)]), slow, rel=0.15)


def test_before_anything_is_seen_the_prior_holds() -> None:
    assert_is(SpeedLearner(TRUE).speed(), TRUE, rel=1e-9)


def test_what_steps_cannot_tell_apart_stays_in_proportion_at_the_height_measured() -> None:
    """Always twenty sequences, never a prompt, twice as slow as thought: everything is twice as slow."""
    prior = Speed(10_000.0, 0.000_3, 0.02)
    speed = learned([(2 * seconds(prior, 0, 20), 0, 20)] * 500, prior)
    assert_is(speed, Speed(5_000.0, 0.000_6, 0.04), rel=0.01)


def test_a_slope_of_nothing_leaves_the_base_what_it_is() -> None:
    """Steps are shorter with more sequences: the slope is at its floor, and the base does not make up for it."""
    speed = learned([(0.05 - 0.000_01 * n, 0, n) for n in range(1, 61)] * 5)
    assert speed.step_per_sequence_s == pytest.approx(Speed().step_per_sequence_s / MOST_OFF)
    assert speed.step_base_s == pytest.approx(0.0497, rel=0.01)


def test_nonsense_cannot_move_the_estimate_out_of_bounds() -> None:
    prior = Speed(10_000.0, 0.000_3)
    speed = learned([(0.0 if number % 2 else 1e9, 8_000 * (number % 2), 1) for number in range(500)], prior)
    bounds = 1 / MOST_OFF * 0.999, MOST_OFF * 1.001
    assert bounds[0] <= speed.prefill_tokens_per_s / prior.prefill_tokens_per_s <= bounds[1]
    assert bounds[0] <= speed.step_per_sequence_s / prior.step_per_sequence_s <= bounds[1]
    assert bounds[0] <= speed.step_base_s / prior.step_base_s <= bounds[1]
