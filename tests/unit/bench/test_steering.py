"""The benchmark itself: equal arrivals, nothing lost, the promised keys."""

import random
import sys
from pathlib import Path

import msgspec
import pytest

from tests.bench.steering import __main__ as bench
from tests.bench.steering.cluster import Cluster
from tests.bench.steering.gateway import VARIANTS, Record
from tests.bench.steering.local_index import LocalIndex
from tests.bench.steering.traffic import Chat, Rung, Shape, Turn, chat, clients, grouped
from tests.bench.steering.workloads import WORKLOADS, Workload
from topics.steering.policy import NAMES, parse_policy

SHORT = Workload("short", "", grouped(Shape(groups=20), ((10, 10), (20, 10))))


def records(workload: Workload, policy: str = "affinity", variant: str = "exact") -> list[list[Record]]:
    cluster = Cluster(workload, parse_policy(policy), 0, VARIANTS[variant])
    return [cluster.run(rung) for rung in workload.rungs(0)]


def count(turn: Turn | None) -> int:
    return 0 if turn is None else 1 + count(turn.follow)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_gives_the_same_arrivals_and_another_gives_others(name: str) -> None:
    def first(seed: int) -> Rung:
        return next(iter(WORKLOADS[name].rungs(seed)))

    assert first(1) == first(1)
    assert first(1) != first(2) or name in ("w4",)  # all at once, nothing shared: no two differ


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("policy", ["affinity", "weighted_approximate", "round_robin"])
def test_every_request_ends_once_in_order(policy: str, variant: str) -> None:
    for rung, got in zip(SHORT.rungs(0), records(SHORT, policy, variant), strict=True):
        assert len(got) == len(rung.turns)
        assert all(record.arrived_at < record.first_at < record.ended_at for record in got)


def test_every_policy_runs() -> None:
    for policy in NAMES:
        assert len(records(SHORT, policy)) == 2


@pytest.mark.parametrize(
    "workload",
    [
        Workload("chat", "", chat(Chat(), ((2, 10),)), linked=True),
        Workload("closed", "", clients(Shape(4, 1, 500, 100, 50, unique_questions=True), (30,), 3), linked=True),
        msgspec.structs.replace(SHORT, kill=(3.0, 6.0)),
        msgspec.structs.replace(SHORT, slowdown=(3.0, 6.0)),
    ],
)
def test_follow_ups_deaths_and_stalls_lose_nothing(workload: Workload) -> None:
    for variant in ("exact", "handoff"):
        for rung, got in zip(workload.rungs(0), records(workload, variant=variant), strict=True):
            assert len(got) == sum(count(turn) for turn in rung.turns)
            assert all(record.ended_at for record in got)


def test_the_ledger_is_empty_when_everything_has_ended() -> None:
    cluster = Cluster(msgspec.structs.replace(SHORT, kill=(3.0, 7.0)), parse_policy("affinity"), 0, VARIANTS["exact"])
    for rung in SHORT.rungs(0):
        cluster.run(rung)
    for gateway in cluster.gateways:
        views = gateway.views()
        assert [(view.inflight, view.uncached_tokens) for view in views] == [(0, 0)] * 8


def test_the_local_index_finds_the_longest_prefix_of_each_worker() -> None:
    rng, index = random.Random(1), LocalIndex(4)
    for _ in range(200):
        held = [rng.randint(0, 20) for _ in range(4)]
        keys = [rng.getrandbits(40) for _ in range(20)]
        for slot, depth in enumerate(held):
            index.stored(slot, keys[:depth] + keys[depth + 1 :])  # a hole, where there is room for one
        assert index.depths(keys) == held


def test_rows_have_the_promised_keys_and_a_resumed_run_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(WORKLOADS, "short", SHORT)
    file = tmp_path / "rows.json"
    arguments = ["bench", "--workload", "short", "--arms", "affinity,random", "--seeds", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", arguments)
    bench.main()
    rows = msgspec.json.decode(file.read_bytes())["rows"]
    wanted = "workload arm mode seed rate out_tokens_s hit_rate ttft_p50_s ttft_p90_s ttft_p99_s"
    assert all(set(wanted.split()) <= row.keys() for row in rows)
    assert [(row["arm"], row["rate"]) for row in rows] == [
        (arm, rate) for arm in ("affinity", "random") for rate in (10, 20)
    ]
    summary = tmp_path / "summary.json"
    monkeypatch.setattr(sys, "argv", [*arguments, "--resume", "--summary", str(summary)])
    capsys.readouterr()
    bench.main()
    assert "seed 0" not in capsys.readouterr().err
    assert msgspec.json.decode(file.read_bytes())["rows"] == rows
    [ours, _] = msgspec.json.decode(summary.read_bytes())["runs"]
    top = next(row for row in rows if (row["arm"], row["rate"]) == ("affinity", 20))
    assert (ours["workload"], ours["arm"], ours["seed"]) == ("short", "affinity", 0)
    assert ours["top_out_tokens_s"] == pytest.approx(top["out_tokens_s"], abs=0.01)
    assert ours["ttft_p90_s"] == pytest.approx(top["ttft_p90_s"], abs=1e-4)
