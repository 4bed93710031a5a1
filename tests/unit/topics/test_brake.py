from topics.brake import Bound, Brake


def test_a_burst_passes_and_then_so_many_a_second() -> None:
    brake = Brake(Bound(burst=3, per_s=2.0), now=10.0)
    assert [brake.wait_s(10.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]


def test_what_was_quiet_for_long_may_burst_again_and_no_more_than_once() -> None:
    brake = Brake(Bound(burst=2, per_s=1.0), now=0.0)
    assert [brake.wait_s(0.0) for _ in range(2)] == [0.0, 0.0]
    assert [brake.wait_s(1_000.0) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_those_that_wait_are_let_go_at_the_pace() -> None:
    brake = Brake(Bound(burst=1, per_s=1.0), now=0.0)
    assert [brake.wait_s(now) for now in (0.0, 0.0, 1.0, 2.0, 4.0)] == [0.0, 1.0, 1.0, 1.0, 0.0]
