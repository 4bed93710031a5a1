"""Pipeline mode without its processes: prompts, what is received, what is refused, what the figures mean."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from infra.settings import Settings
from schemas.events import Event, Failed, Finished, Restarted, Token, Usage
from schemas.jobs import GenerateJob
from schemas.manifest import Limits, Manifest, Source
from tests.bench.steering import pipeline, pipeline_report, scaling
from tests.bench.steering.meter import Usage as Cpu
from tests.bench.steering.producer import Producer, Sent
from tests.bench.steering.prompts import Prompts
from tests.bench.steering.rows import Row
from tests.bench.steering.scaling import outcome, recovery_s
from tests.bench.steering.traffic import BLOCK, Turn
from tests.bench.steering.workloads import SCALED, WORKLOADS
from topics.steering.blocks import Namespace, begin, extend
from topics.steering.policy import parse_policy

IDLE = Cpu(0.1, "broker", 0.1, 0.2)
MANIFEST = Manifest("m", Source("hf", repo="none/none"), Limits(65_536))


def block_keys(turn: Turn) -> list[bytes]:
    ids = Prompts().token_ids(turn)
    assert len(ids) == turn.prompt_tokens
    return extend(begin(Namespace("m")), ids, BLOCK).keys


def test_prompts_share_exactly_the_blocks_that_their_turns_share() -> None:
    for name in ("w1p4", "w8b"):
        turns = next((WORKLOADS | SCALED)[name].rungs(0)).turns[:40]
        chains = [block_keys(turn) for turn in turns]
        for turn, chain in zip(turns, chains, strict=True):
            for other, another in zip(turns, chains, strict=True):
                full = turn.prompt_tokens // BLOCK
                shared = [one == two for one, two in zip(turn.keys[:full], other.keys[:full], strict=True)]
                assert shared == [one == two for one, two in zip(chain, another, strict=True)]


def test_far_apart_block_keys_still_make_different_blocks() -> None:
    keys = [1, 2, 49_153, 49_154, 2 * 49_152 + 1]
    assert len({block_keys(Turn(0.0, [key, key + 1], BLOCK, 1))[0] for key in keys}) == len(keys)


async def received(*events: Event) -> Sent:
    async def stream() -> AsyncIterator[Event]:
        for event in events:
            yield event

    producer = Producer(Settings(), MANIFEST, parse_policy("affinity"), 0)
    record = Sent(Turn(0.0, [], 10, 3), 0, 0.0)
    async with asyncio.timeout(5):
        await producer._follow(record, stream())  # type: ignore[arg-type]  # a subscription is iterated, no more
    return record


async def test_an_answer_that_starts_over_counts_its_last_attempt_only() -> None:
    cut = [Token(1, 1, 0, "a", [1]), Token(1, 2, 0, "b", [2]), Restarted(2, 3, "w")]
    whole = [Token(2, 4, 0, "a", [1]), Token(2, 5, 0, "bc", [2, 3]), Finished(2, 6, Usage(10, 3, 4), "w")]
    record = await received(*cut, *whole)
    assert record.whole
    assert (record.tokens, record.cached_tokens, record.worker) == (3, 4, "w")
    assert record.restarted_at is not None
    assert record.first_at <= record.ended_at


async def test_a_failed_or_short_answer_is_not_whole() -> None:
    assert not (await received(Failed(1, 1, "internal", "no"))).whole
    assert not (await received(Token(1, 1, 0, "a", [1]), Finished(1, 2, Usage(10, 1), "w"))).whole


def test_what_only_the_fast_mode_can_run_is_refused() -> None:
    for name in ("chat", "w4", "w1h", "w1d", "w1s", "w2"):
        with pytest.raises(pipeline.NotForThePipeline, match=name):
            pipeline.refuse(WORKLOADS[name], parse_policy("affinity"))
    with pytest.raises(pipeline.NotForThePipeline, match="weighted_approximate"):
        pipeline.refuse(SCALED["w1p4"], parse_policy("weighted_approximate"))
    pipeline.refuse(SCALED["w1p4"], parse_policy("weighted"))


@pytest.mark.parametrize(
    ("after", "seconds"),
    [([1.0] * 20, 0.0), ([0.0] + [1.0] * 19, 1.0), ([0.5] * 8 + [1.0] * 12, 8.0), ([1.0] * 18 + [0.0] * 2, None)],
)
def test_recovery_is_when_the_last_low_window_is_over(after: list[float], seconds: float | None) -> None:
    assert recovery_s([0.1] * 10 + [1.0] * 10 + after, 20, 40) == seconds


def test_an_earlier_loss_does_not_lower_the_bar() -> None:
    assert recovery_s([1.0] * 10 + [0.5] * 10 + [0.5] * 4 + [1.0] * 16, 20, 40) == 4.0


def finished(at: float, cached: int, tokens: int = 3) -> Sent:
    return Sent(
        Turn(at, [], 10, 3), 0, at, cached_tokens=cached, first_at=at + 0.5, ended_at=at + 1, tokens=tokens, worker="w"
    )


def test_a_request_that_did_not_finish_whole_is_counted_as_lost() -> None:
    records = [finished(number / 2, 5) for number in range(40)]
    records[7].failure = "worker_lost: gone"
    records[9].tokens = 2
    records[15] = msgspec.structs.replace(records[15], first_at=11.0, ended_at=12.0, restarted_at=10.5)
    steps = [scaling.Step(10.0, "something happens", lambda _: None)]
    got = outcome(records, steps, IDLE)
    assert (got.sent, got.whole, got.failures) == (40, 38, ["worker_lost: gone", "2 tokens"])
    assert [(phase.at, phase.requests, phase.hit_rate) for phase in got.phases] == [(0.0, 18, 0.5), (10.0, 20, 0.5)]
    assert got.phases[1].recovery_s == 0.0
    assert [(phase.restarts, phase.ttft_max_s) for phase in got.phases] == [(0, 0.5), (1, 3.5)]


def test_a_stream_that_its_worker_took_along_is_cut_and_a_whole_answer_is_lost() -> None:
    records = [finished(number / 2, 5) for number in range(40)]
    records[7].failure = "worker_lost: gone"
    records[8].failure = "no end within 300 s"
    steps = [scaling.Step(10.0, "something happens", lambda _: None)]
    streams, answers = (outcome(records, steps, IDLE, streamed=streamed) for streamed in (True, False))
    assert (streams.whole, streams.cut, streams.lost) == (38, 1, 1)
    assert (answers.whole, answers.cut, answers.lost) == (38, 0, 2)
    lines = pipeline_report.ends([answers, streams]).splitlines()
    assert [line.split(" | ")[:5] for line in lines[2:]] == [
        ["| whole", "40", "38", "0", "2"],
        ["| streamed", "40", "38", "1", "1"],
    ]


@pytest.mark.parametrize("streamed", [True, False])
async def test_answers_are_asked_for_as_the_play_says(streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, asked = Producer(Settings(), MANIFEST, parse_policy("affinity"), 0, streamed), []

    async def place(job: GenerateJob, *_: object) -> GenerateJob:
        asked.append(job.head.streamed)
        raise LookupError("no need to go on")

    monkeypatch.setattr(producer._placer, "place", place)
    with pytest.raises(LookupError):
        await producer.send(Turn(0.0, [1], 10, 3), 0.0)
    assert asked == [streamed]


def test_the_table_sets_the_pipeline_beside_the_fast_mode_and_says_which_set_the_pace() -> None:
    def row(mode: str, hit_rate: float, **more: object) -> Row:
        return Row("w", "affinity", mode, "exact", 0, 8, 9, 100, hit_rate, 0.5, 0.1, 1, 2, 3, **more)  # type: ignore[arg-type]  # fields by name

    bound = row("pipeline", 0.4, cpu_cores=1.5, busiest="sim-0", busiest_cpu=0.9, pipeline_bound=True)
    line = pipeline_report.compared([row("fast", 0.5), bound]).splitlines()[-1]
    assert "40.0% / 50.0% | +10.0% / +0.0%" in line
    assert line.endswith("| 1.50, sim-0 90% | pipeline |")


def test_a_busy_process_or_a_busy_machine_makes_the_pipeline_the_limit() -> None:
    assert not IDLE.pipeline_bound
    assert Cpu(0.9, "broker", 0.9, 0.5).pipeline_bound
    assert Cpu(0.9, "broker", 0.2, 0.95).pipeline_bound
