import sys

import psutil
import pytest

from schemas.steering import WorkerView
from tests.bench.steering_throttled import outcome
from tests.bench.throttle import throttled
from tests.waiting import until


def test_the_share_that_is_due_is_told_by_time_and_by_learned_steps() -> None:
    views = [
        WorkerView("llm-0:7", step_base_s=0.06, step_per_sequence_s=0.01, prefill_tokens_per_s=400.0),
        WorkerView("llm-1:3", step_base_s=0.15, step_per_sequence_s=0.025, prefill_tokens_per_s=160.0),
    ]
    got = outcome("affinity", 0.4, ["llm-0"] * 30 + ["llm-1"] * 10, views, took_s=20.0)
    assert got.requests == {"llm-0": 30, "llm-1": 10}
    assert got.slow_share == 0.25
    assert got.due_share == pytest.approx(0.4 / 1.4)
    assert got.learned_share == pytest.approx(0.4 / 1.4)
    assert got.prefill_tokens_s["llm-0"] == pytest.approx(256 / (0.07 + 0.64))
    assert got.requests_s == 2.0


async def test_a_throttled_process_is_stopped_now_and_then_and_goes_on_in_the_end() -> None:
    with psutil.Popen([sys.executable, "-c", "while True: pass"]) as process:
        seen: set[str] = set()
        with throttled([process], 0.5, period_s=0.02):

            def both() -> bool:
                seen.add(process.status())
                return psutil.STATUS_STOPPED in seen and len(seen) > 1

            await until(both)
        await until(lambda: process.status() != psutil.STATUS_STOPPED)
        process.kill()
