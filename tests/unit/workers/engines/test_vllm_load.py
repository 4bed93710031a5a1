"""What the board makes of vLLM's figures. An engine that runs requests to their ends gives them out, step by step."""

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from infra.clock import SystemClock
from topics.steering.speed import Speed
from workers.engines.vllm_load import LoadBoard

TRUE = Speed(prefill_tokens_per_s=900.0, step_per_sequence_s=0.012, step_base_s=0.06)
PRIOR = Speed(prefill_tokens_per_s=200.0, step_per_sequence_s=0.01, step_base_s=0.1)
BUDGET = 256


class Request(msgspec.Struct, eq=False):
    at: float  # when it comes
    prompt: int  # tokens to compute: what is cached is not in it
    output: int
    generated: int = 0
    token_at: float = 0.0


def details(ctx: int = 0, ctx_tokens: int = 0, gen: int = 0, gen_tokens: int = 0, ms: float = 0.0) -> Any:
    return SimpleNamespace(
        num_ctx_requests=ctx,
        num_ctx_tokens=ctx_tokens,
        num_generation_requests=gen,
        num_generation_tokens=gen_tokens,
        elapsed_ms=ms,
        is_dummy=False,
    )


def figures(running: int, kv_usage: float, step: Any, gaps: Sequence[float] | None = ()) -> tuple[Any, Any]:
    """As vLLM hands them over; no `gaps`: nobody got a token."""
    scheduler = SimpleNamespace(num_running_reqs=running, kv_cache_usage=kv_usage, iteration_details=step)
    if gaps is None:
        return scheduler, None
    return scheduler, SimpleNamespace(num_generation_tokens=len(gaps), inter_token_latencies_iter=list(gaps))


class Engine:
    """Schedules as vLLM does: a token for each that has its prompt, the rest of the budget for prompts, in chunks."""

    def __init__(self, requests: Sequence[Request], noise: float = 0.05, overhead_s: float = 0.002) -> None:
        self.coming = sorted(requests, key=lambda one: one.at)
        self.running: list[Request] = []
        self.now = 0.0
        self.rng = random.Random(5)
        self.noise, self.overhead_s = noise, overhead_s

    def steps(self) -> Iterator[tuple[Any, Any]]:
        while self.coming or self.running:
            if not self.running:
                self.now = max(self.now, self.coming[0].at)  # it idles, and says nothing meanwhile
            while self.coming and self.coming[0].at <= self.now:
                self.running.append(self.coming.pop(0))
            yield self._step()

    def _step(self) -> tuple[Any, Any]:
        decoding = [one for one in self.running if not one.prompt]
        left, computed = BUDGET - len(decoding), {}
        for one in self.running:
            if one.prompt and left:
                computed[one] = min(left, one.prompt)
                left -= computed[one]
                one.prompt -= computed[one]
        tokens, count = sum(computed.values()), len(decoding) + len(computed)
        took = TRUE.step_base_s + tokens / TRUE.prefill_tokens_per_s + TRUE.step_per_sequence_s * count
        took *= self.rng.gauss(1.0, self.noise)
        self.now += took
        gaps = [self.now - one.token_at for one in decoding]
        first = [one for one in computed if not one.prompt]
        for one in (*decoding, *first):
            one.generated += 1
            one.token_at = self.now
        self.running = [one for one in self.running if one.generated < one.output]
        step = details(len(computed), tokens, len(decoding), len(decoding), 1_000 * (took - self.overhead_s))
        return figures(len(self.running), 0.0, step, gaps if gaps or first else None)


def ramp() -> list[Request]:
    """A new one every second, each as long as the one before."""
    return [Request(float(n), 200 + 40 * n, 150) for n in range(12)]


def drain() -> list[Request]:
    """All at once, and the longest runs alone in the end."""
    return [Request(0.0, 300, 30 * n) for n in range(1, 13)]


def one_by_one() -> list[Request]:
    """Never two at once, with idle minutes in between; only the prompt tells of prefill, only its steps of idleness."""
    return [Request(60.0 * n, 40 + 70 * (n % 6), 20) for n in range(20)]


def board_of(figures_: Iterator[tuple[Any, Any]]) -> LoadBoard:
    board = LoadBoard(SystemClock(), PRIOR)
    for scheduler, iteration in figures_:
        board.record(scheduler, iteration)
    return board


def speed_of(board: LoadBoard) -> Speed:
    return board.read(0, 100, 0).speed


@pytest.mark.parametrize(
    "requests", [ramp(), drain(), [*ramp(), *one_by_one()]], ids=["ramp", "drain", "ramp_and_idle"]
)
def test_what_the_steps_cost_is_learned_from_the_steps(requests: list[Request]) -> None:
    speed = speed_of(board_of(Engine(requests).steps()))
    assert speed.step_per_sequence_s == pytest.approx(TRUE.step_per_sequence_s, rel=0.1)
    assert speed.step_base_s == pytest.approx(TRUE.step_base_s, rel=0.1)
    assert speed.prefill_tokens_per_s == pytest.approx(TRUE.prefill_tokens_per_s, rel=0.1)


def test_idle_minutes_between_requests_are_no_steps() -> None:
    """One sequence at a time does not tell base from slope, but what a step takes, and what a prompt token adds."""
    speed = speed_of(board_of(Engine(one_by_one()).steps()))
    assert speed.prefill_tokens_per_s == pytest.approx(TRUE.prefill_tokens_per_s, rel=0.1)
    one = speed.step_base_s + speed.step_per_sequence_s
    assert one == pytest.approx(TRUE.step_base_s + TRUE.step_per_sequence_s, rel=0.1)


def test_a_step_that_recomputes_a_preempted_sequence_counts_as_prefill() -> None:
    scheduler, iteration = figures(2, 0.0, details(gen=2, gen_tokens=151, ms=300.0), [0.3, 9.0])
    learner = board_of(iter([(scheduler, iteration)] * 50))
    speed = speed_of(learner)
    predicted = speed.step_base_s + 2 * speed.step_per_sequence_s + 149 / speed.prefill_tokens_per_s
    assert predicted == pytest.approx(0.3, rel=0.01)


def test_an_abort_between_steps_tells_of_load_and_not_of_speed() -> None:
    board = board_of(iter([figures(3, 0.5, None, None)]))
    assert speed_of(board) == speed_of(board_of(iter(())))
    assert board.read(9, 100, 0).running == 3


class TestUnused:
    """Of 101 blocks vLLM keeps one for itself."""

    def unused(self, running: int, kv_usage: float, held: int | None, unfinished: int = 9) -> float:
        board = board_of(iter([figures(running, kv_usage, None, None)]))
        return board.read(unfinished, 101, held).kv_unused * 101

    def test_is_all_that_neither_has_content_nor_belongs_to_a_sequence(self) -> None:
        """Sixty full blocks, twenty of them in use by five sequences with a partly filled one each."""
        assert self.unused(5, 0.25, 60) == pytest.approx(35)

    def test_is_never_more_than_nobody_references(self) -> None:
        assert self.unused(5, 0.9, 0) == pytest.approx(10)

    def test_is_nothing_when_everything_is_cached(self) -> None:
        assert self.unused(5, 0.9, 100) == 0

    def test_is_nothing_when_the_events_have_a_hole(self) -> None:
        assert self.unused(0, 0.0, None) == 0

    def test_of_an_idle_engine_is_what_is_not_cached_whatever_the_last_step_said(self) -> None:
        assert self.unused(5, 0.25, 60, unfinished=0) == pytest.approx(40)
