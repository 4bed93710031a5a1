"""Which worker gets the next job, from what this gateway knows at that moment."""

import asyncio
from typing import Any

import pytest

from gateway.dispatch import REFRESH_S, STALE_AFTER_S, Pool, Pools
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.ports import Incarnation, PoolView
from schemas.jobs import GenerateJob, Head, Sampling
from schemas.signals import Beat
from tests.dispatching import unsteered
from tests.waiting import until


class Producer:
    def __init__(self) -> None:
        self.partitions: list[int] = []
        self.refuse = False

    async def send(self, topic: str, message: Any, *, partition: int, key: bytes, headers: Any) -> None:
        if self.refuse:
            raise Unavailable("full")
        assert (topic, key) == ("generate.m", b"r")
        self.partitions.append(partition)


class Leases:
    def __init__(self, **owned: list[int]) -> None:
        self.owned = owned
        self.down = False
        self.asked = 0

    async def view(self, partitions: int) -> PoolView:
        self.asked += 1
        if self.down:
            raise Unavailable("nobody there")
        owners = {number: Incarnation(name, 1) for name, numbers in self.owned.items() for number in numbers}
        return PoolView(owners, {name: Beat(name, 1, at=0.0) for name in self.owned})


JOB = GenerateJob(Head("r", "m", deadline_at=0, created_at=0, reply_to="gw"), [1], Sampling(max_tokens=1))


def pool_of(leases: Any, producer: Any) -> Pool:
    return Pool("m", 4, leases, unsteered("m", 4, producer))


async def test_a_burst_is_spread_by_what_was_sent_before_any_beat_tells() -> None:
    producer = Producer()
    pool = pool_of(Leases(a=[0, 1], b=[2, 3]), producer)
    await pool.refresh()
    async with pool.sent(JOB, []), pool.sent(JOB, []), pool.sent(JOB, []), pool.sent(JOB, []):
        owners = ["a" if partition < 2 else "b" for partition in producer.partitions]
    assert sorted(owners) == ["a", "a", "b", "b"]


async def test_what_has_ended_counts_no_more() -> None:
    producer = Producer()
    pool = pool_of(Leases(a=[0], b=[1]), producer)
    await pool.refresh()
    async with pool.sent(JOB, []):
        stays = producer.partitions[0]
        for _ in range(3):  # each goes to the other one, because it ends before the next
            async with pool.sent(JOB, []):
                assert producer.partitions[-1] != stays


async def test_a_job_that_was_refused_counts_no_more() -> None:
    producer = Producer()
    pool = pool_of(Leases(a=[0], b=[1]), producer)
    await pool.refresh()
    producer.refuse = True
    for _ in range(2):
        with pytest.raises(Unavailable):
            async with pool.sent(JOB, []):
                pass
    producer.refuse = False
    async with pool.sent(JOB, []), pool.sent(JOB, []):
        assert sorted(producer.partitions) == [0, 1]


async def test_without_any_worker_jobs_still_go_out_and_wait_for_one() -> None:
    producer = Producer()
    pool = pool_of(Leases(), producer)
    await pool.refresh()
    assert pool.workers == 0
    for _ in range(4):
        async with pool.sent(JOB, []):
            pass
    assert sorted(producer.partitions) == [0, 1, 2, 3]


async def test_a_view_that_cannot_be_refreshed_holds_for_a_while_and_no_longer() -> None:
    leases = Leases(a=[0])
    pool = pool_of(leases, Producer())
    await pool.refresh()
    leases.down = True
    await pool.refresh()
    assert pool.workers == 1
    for _ in range(int(STALE_AFTER_S / REFRESH_S)):
        await pool.refresh()
    assert pool.workers == 0
    leases.down = False
    await pool.refresh()
    assert pool.workers == 1


async def test_pools_look_again_and_again_until_closed() -> None:
    leases = Leases(a=[0])
    pools = Pools({"m": pool_of(leases, Producer())}, Metrics())
    await pools.start()
    assert pools["m"].workers == 1
    leases.owned["b"] = [1]
    await until(lambda: pools["m"].workers == 2)
    await pools.close()
    asked = leases.asked
    await asyncio.sleep(REFRESH_S * 1.5)  # no condition to wait for: nothing must happen
    assert leases.asked == asked
