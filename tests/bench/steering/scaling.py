"""Workers come, go and die under steady load: is anything lost, and how soon are the caches found again?"""

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence

import msgspec

from tests.bench.steering.meter import Usage
from tests.bench.steering.pipeline import drive
from tests.bench.steering.pool import Workers, World
from tests.bench.steering.producer import Producer, Sent
from tests.bench.steering.traffic import Shape, grouped
from topics.steering.policy import parse_policy

RATE, SECONDS = 12.0, 110.0
# 630,000 tokens: a little more than two workers' caches, less than three's, so that every worker's holds something.
SHAPE = Shape(groups=75, questions=2, output_tokens=100)
WINDOW_S = 5
RECOVERED = 0.95  # of the hit rate before
CUT = "worker_lost"


class Step(msgspec.Struct, frozen=True):
    at: float  # seconds
    about: str
    do: Callable[[Workers], None]


STEPS = (
    Step(35.0, "two more join", lambda workers: workers.start("sim-2", "sim-3")),
    Step(60.0, "one stops (SIGTERM)", lambda workers: workers.stop("sim-3")),
    Step(80.0, "one dies (kill -9)", lambda workers: workers.kill("sim-2")),
    Step(85.0, "it comes back, cold", lambda workers: workers.start("sim-2")),
)


class Phase(msgspec.Struct, frozen=True):
    """From one step to the next: hit rates of what arrived, waits of what got its first token."""

    at: float
    about: str
    requests: int  # arrived
    hit_rate: float
    predicted_hit_rate: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_max_s: float
    restarts: int  # answers that started over elsewhere
    recovery_s: float | None  # after which every window of WINDOW_S is back; None: not before the next step


class Outcome(msgspec.Struct, frozen=True):
    sent: int
    whole: int  # finished, with every token once
    cut: int  # streams that ended with CUT: they had begun on a worker that died
    failures: list[str]
    hit_rates: list[float]  # by second of arrival
    waits: list[tuple[float, float]]  # arrival, TTFT
    phases: list[Phase]
    usage: Usage
    streamed: bool = False

    @property
    def lost(self) -> int:
        """Ended as nobody has promised, or not at all."""
        return self.sent - self.whole - self.cut


async def run(world: World, model: str = "bench-scaling", seed: int = 0, *, streamed: bool = False) -> Outcome:
    """The whole play, in real time, under `affinity`."""
    manifest = await world.serve(model)
    rung = next(grouped(SHAPE, [(RATE, SECONDS)])(seed))
    with Workers(world, model) as workers:
        workers.start("sim-0", "sim-1")
        workers.wait_ready()
        async with Producer(world.settings, manifest, parse_policy("affinity"), seed, streamed) as producer:
            await producer.workers_are(2)
            lasting = {**world.pids, **workers.pids, "producer": os.getpid()}
            async with asyncio.TaskGroup() as group:
                group.create_task(_play(workers))
                records, usage = await drive(producer, rung, 1.0, lasting)
    return outcome(records, STEPS, usage, streamed=streamed)


async def _play(workers: Workers) -> None:
    passed = 0.0
    for step in STEPS:
        await asyncio.sleep(step.at - passed)
        step.do(workers)
        passed = step.at


def outcome(records: Sequence[Sent], steps: Sequence[Step], usage: Usage, *, streamed: bool = False) -> Outcome:
    """`records` in seconds since the start of the play.

    `cut`: had begun on a worker that died, and ended with the error that says so. That is what is promised of streams.
    Whole answers are made again.
    """
    whole = [record for record in records if record.whole]
    seconds = int(max(record.arrived_at for record in records)) + 1
    hit_rates = [_hit_rate(_between(whole, second, second + 1)) for second in range(seconds)]
    marks = [(0.0, "two workers, cold"), *((step.at, step.about) for step in steps), (float(seconds), "")]
    phases = [_phase(whole, hit_rates, at, until, about) for (at, about), (until, _) in itertools.pairwise(marks)]
    return Outcome(
        len(records),
        len(whole),
        sum(streamed and record.failure.startswith(f"{CUT}:") for record in records),
        [record.failure or f"{record.tokens} tokens" for record in records if not record.whole],
        [round(rate, 4) for rate in hit_rates],
        [(round(record.arrived_at, 2), round(record.first_at - record.arrived_at, 3)) for record in whole],
        phases,
        usage,
        streamed,
    )


def _phase(whole: Sequence[Sent], hit_rates: Sequence[float], at: float, until: float, about: str) -> Phase:
    here = _between(whole, at, until)
    waits = sorted(record.first_at - record.arrived_at for record in whole if at <= record.first_at < until)
    return Phase(
        at,
        about,
        len(here),
        _hit_rate(here),
        sum(record.predicted_tokens for record in here) / sum(record.turn.prompt_tokens for record in here),
        waits[len(waits) // 2],
        waits[len(waits) * 9 // 10],
        waits[-1],
        sum(record.restarted_at is not None and at <= record.restarted_at < until for record in whole),
        recovery_s(hit_rates, int(at), int(until)) if at else None,
    )


def recovery_s(hit_rates: Sequence[float], at: int, until: int) -> float | None:
    """Seconds after `at` from which every whole window until `until` has RECOVERED of the best there was before.

    The best of any 2 x WINDOW_S: what one step has done does not lower the bar for the next.
    """
    spans = [hit_rates[start : start + 2 * WINDOW_S] for start in range(max(1, at - 2 * WINDOW_S + 1))]
    wanted = RECOVERED * max(_mean(span) for span in spans)
    starts = range(at, until - WINDOW_S + 1)
    low = [start for start in starts if _mean(hit_rates[start : start + WINDOW_S]) < wanted]
    if not low:
        return 0.0
    return None if low[-1] == starts[-1] else float(low[-1] + 1 - at)


def _between(records: Sequence[Sent], start: float, end: float) -> list[Sent]:
    return [record for record in records if start <= record.arrived_at < end]


def _hit_rate(records: Sequence[Sent]) -> float:
    """0 where nothing arrived."""
    tokens = sum(record.turn.prompt_tokens for record in records)
    return sum(record.cached_tokens for record in records) / tokens if tokens else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
