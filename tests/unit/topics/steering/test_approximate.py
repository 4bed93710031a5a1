from topics.steering.approximate import OwnDecisions


def test_what_was_sent_there_matches_as_a_prefix() -> None:
    own = OwnDecisions(blocks=10)
    own.record("w", ["a", "b", "c"])
    assert own.matched_blocks("w", ["a", "b", "x", "c"]) == 2
    assert own.matched_blocks("other", ["a"]) == 0


def test_the_oldest_prompt_is_forgotten_first_and_its_tail_before_its_head() -> None:
    own = OwnDecisions(blocks=4)
    own.record("w", ["a0", "a1", "a2"])
    own.record("w", ["b0", "b1"])
    assert own.matched_blocks("w", ["a0", "a1", "a2"]) == 2
    assert own.matched_blocks("w", ["b0", "b1"]) == 2


def test_a_dead_worker_holds_nothing() -> None:
    own = OwnDecisions(blocks=4)
    own.record("w", ["a"])
    own.forget("w")
    assert own.matched_blocks("w", ["a"]) == 0
