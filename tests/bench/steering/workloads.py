"""What arrives when: the table of workloads. Identical for every arm; a seed fixes everything."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tests.bench.steering.traffic import Chat, Rung, Shape, chat, clients, grouped
from workers.engines.sim_parts import SimParams

# Published ladder of W1, (requests/s, seconds); the first rung warms up and is not counted.
W1_LADDER = (
    (15, 50), (3, 20), (10, 20), (15, 20), (20, 38), (22, 34), (25, 30), (30, 25), (35, 21), (40, 38), (43, 36),
    (46, 33), (49, 30), (52, 29), (55, 27), (57, 26), (60, 25),
)  # fmt: skip
SHORT_LADDER = ((15, 50), (20, 38), (30, 25), (40, 38), (50, 30), (60, 25))
# W1 with short answers for four workers: what the processes of a whole pipeline can do in real time on two cores.
PIPELINE_LADDER = ((15, 25), (8, 12), (16, 12), (24, 12))
W2_LADDER = ((9, 30), (3, 210), (4, 180), (5, 120), (6, 120), (8, 90), (10, 70), (12, 60), (15, 50), (20, 50))
# Llama-3.1-70B on four H100: published KV size; the prefill rate is scaled from ours by parameters and GPUs (assumed).
LLAMA_70B = SimParams(blocks=7_209, prefill_tokens_per_s=14_563.0)


class Workload(msgspec.Struct, frozen=True):
    name: str
    about: str
    rungs: Callable[[int], Iterator[Rung]]  # by seed
    workers: int = 8
    params: SimParams = SimParams()
    slow: Sequence[int] = ()  # workers at half speed
    kill: tuple[float, float] | None = None  # seconds into each rung: one worker dies, and is back cold
    slowdown: tuple[float, float] | None = None  # seconds into each rung: one worker all but stalls, and recovers
    linked: bool = False  # a request may follow from the end of another


def _scaled(ladder: Sequence[tuple[float, float]], factor: float) -> list[tuple[float, float]]:
    return [(rate * factor, seconds) for rate, seconds in ladder]


_ALL = (
    Workload("w1", "150 groups x 5 prompts, 6,000 + 1,200 in, 1,000 out", grouped(Shape(), W1_LADDER)),
    Workload("w1z", "W1, groups by Zipf 1.0", grouped(Shape(zipf=1.0), W1_LADDER)),
    Workload("w1zx", "W1, Zipf 1.0, rates x 1.5", grouped(Shape(zipf=1.0), _scaled(W1_LADDER, 1.5))),
    Workload("w1o", "W1 with 300 groups: they do not fit", grouped(Shape(groups=300), W1_LADDER)),
    Workload("w1oz", "300 groups, Zipf 0.8", grouped(Shape(groups=300, zipf=0.8), W1_LADDER)),
    Workload("w1b", "W1 in waves every 5 s", grouped(Shape(), W1_LADDER, wave_s=5.0)),
    Workload("w1p", "W1, output 100, rates x 2", grouped(Shape(output_tokens=100), _scaled(W1_LADDER, 2.0))),
    Workload("w1h", "W1, short ladder, two of eight at half speed", grouped(Shape(), SHORT_LADDER), slow=(2, 5)),
    Workload("w1d", "W1, short ladder; one dies 10 s into each rung, cold at 20 s", grouped(Shape(), SHORT_LADDER),
             kill=(10.0, 20.0)),
    Workload("w1s", "W1 in waves every 5 s, below the knee; one all but stalls 5 s into each rung, until 20 s",
             grouped(Shape(), ((15, 50), (10, 40), (20, 40), (30, 40)), wave_s=5.0), slowdown=(5.0, 20.0)),
    Workload("chat", "8 tenants, multi-turn, 2,000 shared",
             chat(Chat(), ((10, 30), (12, 60), (24, 60), (36, 60), (48, 60))), linked=True),
    Workload("w2", "4 x Llama-70B, 83 groups x 3, 8,000 + 1,000 in, 1,000 out",
             grouped(Shape(83, 3, 8_000, 1_000), W2_LADDER), workers=4, params=LLAMA_70B),
    Workload("w4", "decode bound: 250 + 1,000 in, 8,000 out, 50..450 clients",
             clients(Shape(1, 1, 250, 1_000, 8_000, unique_questions=True), (50, 150, 300, 450), 2), linked=True),
    Workload("w8b", "600 groups of four 1,000-token images, 1,200 unique in, 300 out",
             grouped(Shape(600, 1, 4_100, 1_200, 300, unique_questions=True),
                     ((5, 300), (20, 40), (40, 40), (80, 30), (100, 30), (120, 30)))),
    Workload("closed", "800 clients at once, each at its next request the moment it is answered",
             clients(Shape(40, 1, 2_000, 500, 250, unique_questions=True), (800,), 6), linked=True),
)  # fmt: skip
_SCALED = Workload("w1p4", "W1P for four workers: 75 groups, output 100",
                   grouped(Shape(75, output_tokens=100), PIPELINE_LADDER), workers=4)  # fmt: skip
WORKLOADS: dict[str, Workload] = {each.name: each for each in _ALL}
# For the whole pipeline in real time, and beside it in fast mode.
SCALED: dict[str, Workload] = {_SCALED.name: _SCALED}
