"""Every policy against values computed by hand."""

import pytest

from schemas.steering import Ask, WorkerView
from topics.steering.affinity import AffinityParams, affinity
from topics.steering.policy import NAMES, UnknownPolicy, parse_policy
from topics.steering.scorers import SCORERS

# 100 full blocks of 64 and half a block; ten times the speed of the defaults makes the sums easy.
ASK = Ask(6_432, 100, 64, 1_000.0, session="s", turn=4, draw=0.0)


def view(worker: str, **given: float) -> WorkerView:
    base: dict[str, float] = {
        "prefill_tokens_per_s": 1_000.0,
        "step_per_sequence_s": 0.001,
        "step_base_s": 0.0,
        "total_blocks": 1_000,
        "unused_blocks": 0,
    }
    return WorkerView(worker, **{**base, **given})  # type: ignore[arg-type]  # counts are given as ints


def decide(policy: str, *views: WorkerView, ask: Ask = ASK) -> tuple[str, str]:
    choice = parse_policy(policy).decide(ask, views)
    return choice.worker, choice.reason


def test_scorers_give_the_published_values() -> None:
    views = [
        view("a", matched_blocks=50, waiting=2, inflight=4, referenced_blocks=250, uncached_tokens=100),
        view("b", matched_blocks=0, waiting=6, inflight=1, referenced_blocks=900, uncached_tokens=4_194_304),
        view("c", matched_blocks=100, waiting=3, inflight=0, referenced_blocks=0, uncached_tokens=0),
    ]
    scores = {name: scorer(ASK, views) for name, scorer in SCORERS.items()}
    assert scores["prefix"] == [0.5, 0.0, 1.0]
    assert scores["queue"] == [1.0, 0.0, 0.75]
    assert scores["kv"] == [0.75, pytest.approx(0.1), 1.0]
    assert scores["active"] == [0.0, 0.75, 1.0]
    assert scores["token_load"] == [1 - (100 + 3_232) / 4_194_304, 0.0, 1 - 32 / 4_194_304]


def test_equal_queues_all_score_one() -> None:
    assert SCORERS["queue"](ASK, [view("a", waiting=3), view("b", waiting=3)]) == [1.0, 1.0]


def test_the_literal_anchor_prefers_a_cold_empty_worker_to_a_warm_one() -> None:
    warm, cold = view("warm", matched_blocks=100, referenced_blocks=600), view("cold", referenced_blocks=100)
    assert decide("anchor", warm, cold) == ("cold", "score")  # 3 x 0.4 + 2 = 3.2 against 3 x 0.9 + 2 = 4.7
    assert decide("weighted", warm, cold) == ("warm", "score")  # 3 + 2 + 0.8 = 5.8 against 0 + 2 + 1.8 = 3.8


def test_weights_given_replace_the_preset() -> None:
    queued, cold = view("queued", matched_blocks=100, waiting=1), view("cold")
    assert decide("weighted:prefix=1,queue=2", queued, cold) == ("cold", "score")
    assert decide("weighted:prefix=2.5,queue=2", queued, cold) == ("queued", "score")


def test_weighted_active_leaves_a_warm_worker_that_has_most_in_flight() -> None:
    warm, other = view("warm", matched_blocks=50, inflight=10), view("other", inflight=2)
    assert decide("weighted", warm, other)[0] == "warm"  # 1.5 + 2 + 2 against 0 + 2 + 2
    assert decide("weighted_active", warm, other)[0] == "other"  # 5.5 + 0 against 4 + 1.6


def test_ties_go_where_the_draw_points() -> None:
    views = [view(name) for name in "abcd"]
    ask = Ask(6_432, 100, 64, 1_000.0, draw=0.6)
    assert decide("weighted", *views, ask=ask)[0] == "c"


def test_the_affinity_filter_is_sticky_until_the_valve_opens() -> None:
    free = view("free")
    assert decide("affinity_filter", view("warm", matched_blocks=80, uncached_tokens=200_000), free) == (
        "warm",
        "sticky",
    )
    assert decide("affinity_filter", view("warm", matched_blocks=79), view("free", matched_blocks=79)) == (
        "warm",
        "no_sticky",
    )
    # 18 s x 15,928 tokens/s = 286,704 tokens
    behind = [view("warm", matched_blocks=80, uncached_tokens=tokens) for tokens in (286_704, 286_705)]
    assert decide("affinity_filter", behind[0], free) == ("warm", "sticky")
    assert decide("affinity_filter", behind[1], free) == ("free", "valve")


def test_the_simple_policies() -> None:
    views = [view("a", inflight=2), view("b", inflight=1, uncached_tokens=9), view("c", inflight=1)]
    assert decide("least_load", *views) == ("c", "least_load")
    assert decide("round_robin", *views) == ("b", "turn")  # 4 modulo 3
    assert decide("random", *views, ask=Ask(10, 0, 64, 1.0, draw=0.99)) == ("c", "draw")


def test_a_session_keeps_its_worker_while_that_worker_lives() -> None:
    views = [view(name) for name in "abcdef"]
    home = decide("session", *views)[0]
    others = [one for one in views if one.worker != home]
    assert decide("session", *[one for one in views if one.worker != others[0].worker])[0] == home
    assert decide("session", *others)[0] != home
    assert decide("session", *views, ask=Ask(10, 0, 64, 1.0)) == ("a", "least_load")


class TestAffinity:
    params = AffinityParams()

    def choose(self, *views: WorkerView) -> tuple[str, str, float]:
        choice = affinity(ASK, views, self.params)
        return choice.worker, choice.reason, pytest.approx(choice.cost)

    def test_cold_prompts_go_where_most_memory_is_unused(self) -> None:
        # Within 6.432 s (own) of the cheapest at 6.432 s: b costs 12.432 s, c 13.432 s.
        views = view("a"), view("b", uncached_tokens=6_000, unused_blocks=5), view("c", uncached_tokens=7_000)
        assert self.choose(*views) == ("b", "cold", 12.432)

    def test_among_equally_empty_ones_the_fewest_referenced_blocks_decide(self) -> None:
        assert self.choose(view("a", referenced_blocks=9), view("b", referenced_blocks=3))[0] == "b"

    def test_a_match_of_less_than_a_third_is_no_match(self) -> None:
        assert self.choose(view("a", matched_blocks=30), view("b", unused_blocks=1))[:2] == ("b", "cold")
        assert self.choose(view("a", matched_blocks=31), view("b", unused_blocks=1))[:2] == ("a", "home")

    def test_decode_load_counts_at_a_tenth(self) -> None:
        # 0.1 x 1,000 tokens x 0.001 s x 10 in flight = 1 s
        assert self.choose(view("a", inflight=10)) == ("a", "cold", 7.432)

    def test_the_time_of_the_answer_itself_keeps_from_slow_workers(self) -> None:
        # 0.03 x 1,000 tokens x 0.2 s = 6 s more
        assert self.choose(view("a", step_base_s=0.2)) == ("a", "cold", 12.432)
        slow = view("slow", matched_blocks=100, step_base_s=0.2)
        assert self.choose(slow, view("fast", matched_blocks=90))[:2] == ("fast", "home")

    def test_the_cheapest_holder_is_home(self) -> None:
        views = view("a", matched_blocks=100, uncached_tokens=500), view("b", matched_blocks=80), view("c")
        assert self.choose(*views) == ("a", "home", 0.532)

    def test_a_rare_prefix_stays_home_where_a_hot_one_gets_a_second(self) -> None:
        # Home costs 20.032 s with its queue, the new one 6.432 s; recomputing costs 6.4 s more, twice if it evicts.
        home = {"matched_blocks": 100, "uncached_tokens": 10_000, "inflight": 100}
        # 10 s queue + 10 s decode + 0.032 s own = 20.032 s; gap 13.6 s.
        hot = view("home", family_inflight=20, **home)
        assert self.choose(hot, view("new"))[:2] == ("new", "second_home")  # needs 6.4 x 2 x 1 = 12.8 s
        rare = view("home", family_inflight=18, **home)
        assert self.choose(rare, view("new"))[:2] == ("home", "stay")  # needs 12.8 x 0.2 / 0.18 = 14.2 s

    def test_a_worker_with_unused_memory_earns_homes_at_once(self) -> None:
        home = view("home", matched_blocks=100, uncached_tokens=7_000, inflight=1, family_inflight=0)
        # Gap 7 + 0.1 + 0.032 - 6.432 = 0.7 s; needs 6.4 s.
        assert self.choose(home, view("new", unused_blocks=100))[:2] == ("home", "stay")
        home = view("home", matched_blocks=100, uncached_tokens=13_000, inflight=1, family_inflight=0)
        assert self.choose(home, view("new", unused_blocks=100))[:2] == ("new", "second_home")
        assert self.choose(home, view("new", unused_blocks=99))[:2] == ("home", "stay")

    def test_a_slow_worker_is_priced_at_its_own_speed(self) -> None:
        slow = view("slow", matched_blocks=50, prefill_tokens_per_s=100.0)
        assert self.choose(slow, view("fast", matched_blocks=45)) == ("fast", "home", 3.552)

    def test_the_alternatives_tell_what_they_would_have_cost(self) -> None:
        choice = affinity(ASK, [view("a"), view("b", matched_blocks=100)], self.params)
        assert [(other.worker, other.cost) for other in choice.alternatives] == [("a", 6.432)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("best", "unknown steering policy 'best'; known: affinity, "),
        ("weighted:prefx=1", "'prefx' is no scorer; scorers: prefix, queue, kv"),
        ("round_robin:prefix=3", "takes no weights"),
        ("affinity_filter:queue=2", "queue"),
        ("affinity:stickiness=2", "parameters: decode_weight, answer_weight"),
        ("weighted:prefix", "expected key=number"),
        ("weighted:prefix=1,prefix=2", "once each"),
        ("weighted:prefix=much", "not a number"),
        ("weighted:prefix=-1", ">= 0"),
        ("weighted:prefix=nan", ">= 0"),
        ("weighted:prefix=0", "every weight is 0"),
        ("", "unknown steering policy"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UnknownPolicy) as refused:
        parse_policy(text)
    assert complaint in str(refused.value)


def test_every_known_policy_decides_also_for_one_worker_and_an_empty_prompt() -> None:
    for name in NAMES:
        assert decide(name, view("only"), ask=Ask(0, 0, 64, 0.0))[0] == "only"
