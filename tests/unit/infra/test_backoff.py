from infra import backoff


def test_every_death_in_a_row_doubles_the_delay_up_to_a_limit() -> None:
    assert [backoff.delay_s(deaths) for deaths in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert backoff.delay_s(50) == backoff.MOST_S


def test_a_part_that_served_for_long_starts_its_count_anew() -> None:
    assert backoff.deaths_in_a_row(5, served_s=backoff.STEADY_S) == 1


def test_a_part_that_died_soon_after_it_served_counts_on() -> None:
    assert backoff.deaths_in_a_row(5, served_s=backoff.STEADY_S - 1) == 6
