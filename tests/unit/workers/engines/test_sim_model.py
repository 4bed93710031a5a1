"""The worker model against values computed by hand, and what must hold for any load."""

import random
from collections.abc import Sequence as Row

import msgspec
import pytest

from workers.engines.sim_model import SimWorker
from workers.engines.sim_parts import Sequence, SimParams

# A step takes 10 ms + 1 ms per sequence + 1 ms per prefilled token; blocks of 4 tokens.
PARAMS = SimParams(
    block_tokens=4,
    blocks=20,
    step_budget_tokens=16,
    max_sequences=3,
    prefill_tokens_per_s=1_000.0,
    step_base_s=0.010,
    step_per_sequence_s=0.001,
)


class Ears:
    """Mirrors the cache from its events, and notes when what happened."""

    def __init__(self) -> None:
        self.mirror: set[object] = set()
        self.removed_in_order: list[object] = []
        self.first: dict[object, float] = {}
        self.ended: dict[object, float] = {}

    def stored(self, keys: Row[object], parent: object) -> None:
        assert self.mirror.isdisjoint(keys)
        assert parent is None or parent in self.mirror
        self.mirror.update(keys)

    def removed(self, keys: Row[object]) -> None:
        assert self.mirror.issuperset(keys)
        self.mirror.difference_update(keys)
        self.removed_in_order += keys

    def cleared(self) -> None:
        self.mirror.clear()

    def first_token(self, sequence: Sequence, at: float) -> None:
        self.first.setdefault(sequence.tag, at)

    def finished(self, sequence: Sequence, at: float) -> None:
        assert sequence.tag not in self.ended
        self.ended[sequence.tag] = at

    def step(self, seconds: float, prefilled_tokens: int, sequences: int) -> None:
        assert prefilled_tokens <= PARAMS.step_budget_tokens


def worker(**changed: float) -> tuple[SimWorker, Ears]:
    ears = Ears()
    return SimWorker(msgspec.structs.replace(PARAMS, **changed), ears, ears), ears


def sequence(tag: str, prompt: int, output: int, family: str = "") -> Sequence:
    """Prompts of one family are equal as far as they go; outputs never are."""
    blocks = prompt // 4
    keys = [f"{family or tag}{n}" for n in range(blocks)] + [
        f"{tag}/{n}" for n in range((prompt + output) // 4 - blocks)
    ]
    return Sequence(tag, keys, prompt, output)


def test_one_request_takes_one_prefill_step_and_a_step_per_further_token() -> None:
    model, ears = worker()
    model.submit(sequence("a", 10, 3))
    model.run_until(1.0)
    assert ears.first["a"] == pytest.approx(0.010 + 0.001 + 0.010)
    assert ears.ended["a"] == pytest.approx(0.021 + 2 * 0.011)
    assert model.next_event_at is None


def test_a_long_prompt_is_prefilled_within_the_token_budget() -> None:
    model, ears = worker()
    model.submit(sequence("a", 40, 1))
    model.run_until(1.0)
    assert ears.first["a"] == pytest.approx(3 * 0.011 + 0.040)  # 16 + 16 + 8
    assert ears.ended["a"] == ears.first["a"]


def test_decoding_sequences_take_their_tokens_out_of_the_budget() -> None:
    model, ears = worker()
    model.submit(sequence("a", 4, 9))
    model.run_until(0.015)
    model.submit(sequence("b", 16, 1))
    model.run_until(1.0)
    # 15 of its 16 tokens fit beside a's one.
    assert ears.first["b"] == pytest.approx(0.015 + 0.011 + (0.012 + 0.015) + (0.012 + 0.001))


def test_a_repeated_prompt_computes_only_what_is_not_in_a_full_block_but_at_least_one_token() -> None:
    for prompt, cached in ((10, 8), (12, 8), (13, 12), (3, 0)):
        model, _ = worker()
        model.submit(sequence("a", prompt, 1, family="f"))
        model.run_until(1.0)
        again = sequence("b", prompt, 1, family="f")
        model.submit(again)
        model.run_until(2.0)
        assert again.cached_tokens == cached


def test_an_answer_stays_cached_for_the_next_turn() -> None:
    model, _ = worker()
    first = sequence("a", 6, 7)
    model.submit(first)
    model.run_until(1.0)
    follow = Sequence("b", [*first.keys, "b/0", "b/1"], 16, 4)
    model.submit(follow)
    model.run_until(2.0)
    assert follow.cached_tokens == 12  # 6 + 7 - 1: the last token sampled was never run through the model


def test_what_is_scheduled_can_be_matched_in_the_same_step() -> None:
    model, ears = worker()
    model.submit(sequence("x", 1, 1))  # keeps it busy while the others queue
    for tag in "ab":
        model.submit(sequence(tag, 9, 1, family="f"))
    model.run_until(1.0)
    assert ears.first["a"] == ears.first["b"] == pytest.approx(0.012 + 0.012 + 0.009 + 0.001)


def test_the_longest_idle_goes_first_and_the_tail_of_a_prompt_before_its_head() -> None:
    model, ears = worker(blocks=6)
    for tag in "ab":
        model.submit(sequence(tag, 8, 1))
        model.run_until(model.now + 1.0)
    model.submit(sequence("c", 17, 1))  # 5 blocks, 2 are blank
    model.run_until(model.now + 1.0)
    assert ears.removed_in_order == ["a1", "a0", "b1"]


def test_no_more_than_the_most_sequences_run_at_once() -> None:
    model, ears = worker()
    for tag in "abcd":
        model.submit(sequence(tag, 1, 5))
    model.run_until(0.05)
    assert (len(model.running), len(model.waiting)) == (3, 1)
    model.run_until(1.0)
    assert ears.ended.keys() == set("abcd")


def test_the_youngest_is_preempted_when_memory_runs_out_and_finishes_later() -> None:
    model, ears = worker(blocks=6)
    for tag in "ab":
        model.submit(sequence(tag, 8, 12))
    model.run_until(2.0)
    assert model.preemptions == 1
    assert ears.ended["a"] < ears.ended["b"]
    assert model.cache.referenced == 0


def test_a_prompt_that_does_not_fit_waits_for_those_that_run() -> None:
    model, ears = worker(blocks=6)
    model.submit(sequence("a", 16, 4))
    model.submit(sequence("b", 12, 1))
    model.run_until(0.03)
    assert list(model.running) == [next(iter(model.running))]
    model.run_until(1.0)
    assert ears.first["b"] > ears.ended["a"]


def test_half_the_speed_takes_twice_as_long() -> None:
    times = []
    for speed in (1.0, 0.5):
        model, ears = worker(speed=speed)
        model.submit(sequence("a", 10, 5))
        model.run_until(1.0)
        times.append(ears.ended["a"])
    assert times[1] == pytest.approx(2 * times[0])


def test_a_killed_worker_loses_everything_and_tells_how_far_each_had_come() -> None:
    model, ears = worker()
    for tag in "ab":
        model.submit(sequence(tag, 4, 10))
    model.run_until(0.060)
    lost = model.kill()
    assert [(each.tag, each.generated) for each in lost] == [("a", 4), ("b", 3)]
    assert not ears.mirror
    assert model.cache.blank == PARAMS.blocks
    assert model.next_event_at is None


def test_an_aborted_request_gives_its_memory_back_wherever_it_was() -> None:
    for at in (0.0, 0.005, 0.012, 0.03, 0.08):
        model, ears = worker()
        runs = [sequence(tag, 14, 6) for tag in "abcd"]
        for run in runs:
            model.submit(run)
        model.run_until(at)
        for run in runs[1:]:
            model.abort(run)
            model.abort(run)
        model.run_until(2.0)
        assert ears.ended.keys() == {"a"}
        assert model.cache.referenced == 0


@pytest.mark.parametrize("seed", range(5))
def test_under_any_load_everything_ends_once_memory_adds_up_and_events_mirror_the_cache(seed: int) -> None:
    rng = random.Random(seed)
    model, ears = worker(blocks=14)
    for number in range(150):
        model.run_until(model.now + rng.expovariate(8.0))
        family = f"f{rng.randrange(5)}-"
        model.submit(sequence(f"r{number}", rng.randint(1, 24), rng.randint(1, 30), family))
        held = sum(each.private for each in model.running) + len({key for each in model.running for key in each.shared})
        assert model.cache.referenced == held
        assert 0 <= model.cache.blank <= 14
    model.run_until(model.now + 1_000.0)
    assert len(ears.ended) == 150
    assert all(ears.first[tag] <= ears.ended[tag] for tag in ears.ended)
    assert model.cache.referenced == 0
    assert len(ears.mirror) == 14 - model.cache.blank
    assert model.preemptions > 0
