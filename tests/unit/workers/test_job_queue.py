from tests.unit.workers.pool import job
from topics.bus import Delivery, Position
from workers.job_queue import JobQueue


def queued(*priorities: int) -> tuple[JobQueue, list[Delivery]]:
    queue = JobQueue()
    deliveries = [
        Delivery(Position("generate.m", 0, at), job(f"r{at}", priority=one)) for at, one in enumerate(priorities)
    ]
    for one in deliveries:
        queue.add(one)
    return queue, deliveries


def test_the_most_urgent_begins_first_and_equals_in_the_order_they_came() -> None:
    queue, _ = queued(5, 0, 5, 0)
    order = []
    while delivery := queue.next():
        order.append(delivery.at.offset)
    assert order == [1, 3, 0, 2]


def test_what_has_begun_cannot_be_removed() -> None:
    queue, deliveries = queued(0, 0)
    assert queue.next() is deliveries[0]
    assert not queue.remove(deliveries[0])
    assert queue.remove(deliveries[1])
    assert len(queue) == 0
