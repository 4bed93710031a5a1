from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from infra.ports import Incarnation, PoolView
from schemas.signals import Beat
from topics.steer import choose


def pool(**loads: int) -> PoolView:
    """Workers with this load each, two partitions each, in order of their names."""
    owners = {2 * at + side: Incarnation(name, 1) for at, name in enumerate(sorted(loads)) for side in (0, 1)}
    return PoolView(owners, {name: Beat(name, 1, 0.0, running=load) for name, load in loads.items()})


def test_the_least_loaded_worker_gets_it_on_a_partition_of_its_own() -> None:
    choice = choose(pool(a=3, b=1, c=2), 6, {}, 0)
    assert (choice.worker, choice.reason) == ("b", "least_loaded") and choice.partition in (2, 3)


def test_waiting_work_counts_like_running_work() -> None:
    view = pool(a=0, b=1)
    view.beats["a"] = Beat("a", 1, 0.0, waiting=5)
    assert choose(view, 4, {}, 0).worker == "b"


def test_what_this_gateway_has_just_sent_counts_before_any_beat_tells_of_it() -> None:
    sent: Counter[str] = Counter()
    for ticket in range(30):
        sent[choose(pool(a=0, b=0, c=0), 6, sent, ticket).worker] += 1
    assert set(sent.values()) == {10}


def test_equals_take_turns_and_so_do_the_partitions_of_each() -> None:
    turns = Counter(choose(pool(a=0, b=0), 4, {}, ticket).partition for ticket in range(40))
    assert turns == {partition: 10 for partition in range(4)}


def test_without_a_living_worker_all_partitions_take_turns() -> None:
    choices = [choose(PoolView({}, {}), 3, {}, ticket) for ticket in range(6)]
    assert [one.partition for one in choices] == [0, 1, 2, 0, 1, 2]
    assert {(one.worker, one.reason) for one in choices} == {("", "no_live_worker")}


def test_a_worker_without_a_partition_or_a_partition_of_an_earlier_life_is_no_choice() -> None:
    view = pool(a=9)
    view.beats["new"] = Beat("new", 1, 0.0)
    view.owners[2], view.beats["reborn"] = Incarnation("reborn", 1), Beat("reborn", 2, 0.0)
    assert choose(view, 4, {}, 0).worker == "a"


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 5)),
    st.dictionaries(st.integers(0, 11), st.sampled_from("abcde")),
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 5)),
    st.integers(0, 1_000),
)
def test_the_choice_is_always_a_partition_of_the_worker_named(
    loads: dict[str, int], owners: dict[int, str], sent: dict[str, int], ticket: int
) -> None:
    view = PoolView(
        {one: Incarnation(name, 1) for one, name in owners.items()},
        {name: Beat(name, 1, 0.0, running=load) for name, load in loads.items()},
    )
    choice = choose(view, 12, sent, ticket)
    assert 0 <= choice.partition < 12
    alive = set(owners.values()) & loads.keys()
    if not alive:
        assert choice.reason == "no_live_worker"
        return
    assert view.owners[choice.partition].worker == choice.worker
    load = {name: loads[name] + sent.get(name, 0) for name in alive}
    assert load[choice.worker] == min(load.values())
