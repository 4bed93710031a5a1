"""A worker of 1,000 prompt tokens/s looks at its queue; the bound is 2 s."""

from schemas.steering import WorkerView
from topics.steering.handoff import MAX_HOPS, Queued, give_back

ME = WorkerView("me", prefill_tokens_per_s=1_000.0)


def idle(name: str, **given: int) -> WorkerView:
    return WorkerView(name, prefill_tokens_per_s=1_000.0, total_blocks=100, **given)


def jobs(count: int, **given: float) -> list[Queued]:
    base: dict[str, float] = {"prompt_tokens": 500, "uncached_tokens": 500, "waited_s": 0.0}
    return [Queued(f"j{number}", **{**base, **given}) for number in range(count)]  # type: ignore[arg-type]  # counts


def given(queue: list[Queued], *others: WorkerView, begun_tokens: int = 0, starts_per_s: float = 0.0) -> list[str]:
    return give_back(queue, begun_tokens, starts_per_s, ME, others, bound_s=2.0)


def test_a_queue_within_the_bound_stays() -> None:
    assert given(jobs(4), idle("a")) == []  # the last one begins at 1.5 s and has its token at 2 s


def test_what_would_miss_the_bound_goes_as_far_as_others_are_idle_and_no_further() -> None:
    # From the fifth on they miss it; a takes two (0.5 s, 1.0 s), then it would keep the next one waiting too.
    assert given(jobs(8), idle("a")) == ["j4", "j5"]
    assert given(jobs(8), idle("a"), idle("b")) == ["j4", "j5", "j6", "j7"]


def test_who_has_waited_longest_goes_first() -> None:
    queue = [*jobs(1, waited_s=9.0), Queued("late", 500, 500, 0.0)]
    assert given(queue, idle("a"), begun_tokens=3_000) == ["j0", "late"]
    assert given(queue, idle("a", uncached_tokens=400), begun_tokens=3_000) == ["j0"]


def test_a_job_that_is_not_clearly_better_off_elsewhere_stays() -> None:
    # Warm here: 0.1 s after 0.7 s. Cold there: 0.5 s.
    assert given(jobs(1, uncached_tokens=100, waited_s=5.0), idle("a"), begun_tokens=700) == []
    assert given(jobs(1, uncached_tokens=100, waited_s=5.0), idle("a"), begun_tokens=901) == ["j0"]


def test_nothing_moves_when_most_others_have_a_queue_or_full_memory() -> None:
    busy, full = idle("busy", waiting=1), idle("full", referenced_blocks=61)
    assert given(jobs(8), busy, full, idle("a")) == []
    assert given(jobs(8), busy, idle("a"), idle("b")) == ["j4", "j5", "j6", "j7"]
    assert given(jobs(8)) == []


def test_a_job_that_has_been_given_back_often_enough_stays_for_good() -> None:
    assert given(jobs(8, hops=MAX_HOPS), idle("a")) == []


def test_a_worker_that_hardly_starts_anything_gives_back_although_its_tokens_look_few() -> None:
    assert given(jobs(3, uncached_tokens=1), idle("a")) == []
    # One start in five seconds: the first would begin after 5 s, and so would each once those before it have left.
    assert given(jobs(3, uncached_tokens=1), idle("a"), starts_per_s=0.2) == ["j0", "j1"]
