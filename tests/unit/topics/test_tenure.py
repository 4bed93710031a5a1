import pytest

from tests.contracts.bus_worlds import job
from topics.bus import Delivery, Position
from topics.records import Record
from topics.tenure import Tenure, oldest


def record(offset: int, partition: int = 0, timestamp_ms: int = 0) -> Record:
    return Record(Position("t", partition, offset), timestamp_ms, None, b"")


def begun(start: int = 0, *records: Record) -> Tenure:
    tenure = Tenure()
    tenure.begin(start)
    for one in records:
        tenure.add(one)
    return tenure


def hand_out(tenure: Tenure) -> Delivery:
    delivery = Delivery(tenure.take().at, job("r"))
    tenure.deliver(delivery)
    return delivery


def test_where_it_began_is_committed_first_so_that_lag_can_be_seen() -> None:
    assert Tenure().to_commit() is None
    assert begun(5).to_commit() == 5


def test_nothing_is_committed_twice() -> None:
    tenure = begun(0, record(0))
    tenure.committed = tenure.to_commit()
    delivery = hand_out(tenure)
    assert tenure.to_commit() is None
    tenure.done(delivery)
    assert tenure.to_commit() == 1


def test_a_fetched_record_is_not_committed_past_before_it_is_handed_out_and_done() -> None:
    tenure = begun(0, record(0), record(1))
    assert tenure.position == 2
    tenure.done(hand_out(tenure))
    assert tenure.to_commit() == 1


def test_a_settled_record_lets_the_commit_pass() -> None:
    tenure = begun(0, record(0), record(1))
    tenure.settle(tenure.take().at.offset)
    assert tenure.to_commit() == 1 and tenure.next == record(1)


def test_a_delivery_of_another_tenure_is_not_done_here_even_if_its_offset_is_open() -> None:
    before, now = begun(0, record(0)), begun(0, record(0))
    stale, fresh = hand_out(before), hand_out(now)
    assert stale.at == fresh.at
    assert not now.done(stale)
    assert now.to_commit() == 0
    assert now.done(fresh) and not now.done(fresh)


def test_holes_are_skipped_only_when_no_record_waits() -> None:
    tenure = begun(0, record(0))
    tenure.skip_to(9)
    assert tenure.position == 1
    tenure.settle(tenure.take().at.offset)
    tenure.skip_to(9)
    assert (tenure.position, tenure.to_commit()) == (9, 9)
    tenure.skip_to(4)
    assert tenure.position == 9


def test_a_log_that_goes_backwards_is_noticed() -> None:
    with pytest.raises(ValueError, match="t/0@3 comes after 4"):
        begun(5).add(record(3))


def test_the_oldest_record_comes_first_and_a_partition_keeps_its_order() -> None:
    full = begun(0, record(0, 0, 10), record(1, 0, 5), record(2, 0, 40))
    other = begun(0, record(0, 1, 20))
    order = []
    while found := oldest([full, other, begun(0)]):
        order.append((found[1].at.partition, found[1].at.offset))
        found[0].take()
    assert order == [(0, 0), (0, 1), (1, 0), (0, 2)]
