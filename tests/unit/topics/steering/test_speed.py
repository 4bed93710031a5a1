import random

import pytest

from topics.steering.speed import Speed, SpeedLearner


def observe(learner: SpeedLearner, rng: random.Random, steps: int, rate: float, per_sequence: float) -> None:
    for _ in range(steps):
        prefill, sequences = rng.choice([0, 0, 0, rng.randint(1, 8_192)]), rng.randint(1, 150)
        noise = rng.gauss(1.0, 0.05)
        learner.step((0.03 + prefill / rate + per_sequence * sequences) * noise, prefill, sequences)


def test_before_anything_is_seen_the_prior_holds() -> None:
    speed = SpeedLearner(Speed(10_000.0, 0.0003)).speed()
    assert speed.prefill_tokens_per_s == pytest.approx(10_000.0)
    assert speed.step_per_sequence_s == pytest.approx(0.0003)


def test_a_slow_worker_is_found_out_within_a_few_hundred_noisy_steps() -> None:
    learner = SpeedLearner(Speed())
    observe(learner, random.Random(3), 300, rate=7_964.0, per_sequence=0.00044)
    speed = learner.speed()
    assert speed.prefill_tokens_per_s == pytest.approx(7_964.0, rel=0.05)
    assert speed.step_per_sequence_s == pytest.approx(0.00044, rel=0.15)
    assert speed.step_base_s == pytest.approx(0.03, rel=0.15)


def test_a_worker_that_becomes_slow_is_found_out_too() -> None:
    learner, rng = SpeedLearner(Speed()), random.Random(4)
    observe(learner, rng, 3_000, rate=15_928.0, per_sequence=0.00022)
    observe(learner, rng, 5_000, rate=5_000.0, per_sequence=0.00022)
    assert learner.speed().prefill_tokens_per_s == pytest.approx(5_000.0, rel=0.1)


def test_steps_that_tell_nothing_of_prefill_leave_its_prior_alone() -> None:
    learner = SpeedLearner(Speed(10_000.0, 0.0003))
    for _ in range(500):
        learner.step(0.04, 0, 20)
    assert learner.speed().prefill_tokens_per_s == pytest.approx(10_000.0)


def test_nonsense_cannot_move_the_estimate_out_of_bounds() -> None:
    learner = SpeedLearner(Speed(10_000.0, 0.0003))
    for number in range(500):
        learner.step(0.0 if number % 2 else 100.0, 8_000 * (number % 2), 1)
    speed = learner.speed()
    assert 500.0 <= speed.prefill_tokens_per_s <= 200_000.0
    assert 0.0003 / 20 <= speed.step_per_sequence_s <= 0.0003 * 20.001
