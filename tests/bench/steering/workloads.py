"""The workloads: what arrives when. Identical for every arm; a seed fixes everything."""

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from workers.engines.sim_model import SimParams

BLOCK = 64
# Published ladder of W1, (requests/s, seconds); the first rung warms up and is not counted.
W1_LADDER = (
    (15, 50), (3, 20), (10, 20), (15, 20), (20, 38), (22, 34), (25, 30), (30, 25), (35, 21), (40, 38), (43, 36),
    (46, 33), (49, 30), (52, 29), (55, 27), (57, 26), (60, 25),
)  # fmt: skip
SHORT_LADDER = ((15, 50), (20, 30), (30, 25), (40, 25), (50, 20), (60, 20))


class Turn(msgspec.Struct):
    """One request: the keys of every full block of prompt and output, so that a cached answer can be matched too."""

    at: float  # seconds after the rung's start
    keys: Sequence[int]
    prompt_tokens: int
    output_tokens: int
    session: str = ""
    then: "Callable[[random.Random], Turn | None] | None" = None  # the next turn, `at` seconds after this one ends


class Rung(msgspec.Struct):
    rate: float  # requests/s, or the number of clients of a closed loop
    seconds: float
    turns: list[Turn]
    counted: bool = True


class Workload(msgspec.Struct, frozen=True):
    name: str
    rungs: Callable[[int], Iterator[Rung]]  # by seed
    workers: int = 8
    params: SimParams = SimParams()
    slow: Sequence[int] = ()  # workers at half speed
    kill: tuple[float, float] | None = None  # seconds into each rung: one worker dies, and is back cold
    about: str = ""


class Shape(msgspec.Struct, frozen=True):
    """Groups with a common prefix, a few questions each."""

    groups: int = 150
    questions: int = 5
    shared_tokens: int = 6_000
    question_tokens: int = 1_200
    output_tokens: int = 1_000
    zipf: float = 0.0
    unique_questions: bool = False


def _grouped(shape: Shape, ladder: Sequence[tuple[float, float]], wave_s: float = 0.0) -> Callable[[int], Iterator[Rung]]:
    def rungs(seed: int) -> Iterator[Rung]:
        rng = random.Random(seed)
        weights = [1.0 / (rank + 1) ** shape.zipf for rank in range(shape.groups)]
        maker = _Maker(shape)
        for number, (rate, seconds) in enumerate(ladder):
            arrivals = _waves(rng, rate, seconds, wave_s) if wave_s else _poisson(rng, rate, seconds)
            groups = rng.choices(range(shape.groups), weights, k=len(arrivals))
            turns = [
                maker.turn(at, group, rng.randrange(shape.questions)) for at, group in zip(arrivals, groups, strict=True)
            ]
            yield Rung(rate, seconds, turns, counted=number > 0)

    return rungs


class _Maker:
    """Hands out block keys: equal numbers mean equal prefixes."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._next = 1
        self._prompts: dict[tuple[int, int], list[int]] = {}
        self._shared: dict[int, list[int]] = {}

    def fresh(self, count: int) -> list[int]:
        start, self._next = self._next, self._next + count
        return list(range(start, start + count))

    def shared(self, group: int, tokens: int) -> list[int]:
        if group not in self._shared:
            self._shared[group] = self.fresh(tokens // BLOCK)
        return self._shared[group]

    def turn(self, at: float, group: int, question: int) -> Turn:
        shape = self._shape
        prompt_tokens = shape.shared_tokens + shape.question_tokens
        key = (group, -self._next if shape.unique_questions else question)
        if key not in self._prompts:
            shared = self.shared(group, shape.shared_tokens)
            prompt = shared + self.fresh(prompt_tokens // BLOCK - len(shared))
            if shape.unique_questions:
                return self._turn(at, prompt, group)
            self._prompts[key] = prompt
        return self._turn(at, self._prompts[key], group)

    def _turn(self, at: float, prompt: list[int], group: int) -> Turn:
        shape = self._shape
        tokens = shape.shared_tokens + shape.question_tokens
        full = (tokens + shape.output_tokens) // BLOCK
        return Turn(at, prompt + self.fresh(full - len(prompt)), tokens, shape.output_tokens, f"g{group}")


def _poisson(rng: random.Random, rate: float, seconds: float) -> list[float]:
    """As many arrivals as the rate says, at independent uniform times: a Poisson process given its count."""
    return sorted(rng.uniform(0.0, seconds) for _ in range(round(rate * seconds)))


def _waves(rng: random.Random, rate: float, seconds: float, wave_s: float) -> list[float]:
    """All of each interval's arrivals within its first 50 ms."""
    count = round(rate * seconds)
    starts = [wave_s * int(rng.uniform(0.0, seconds) / wave_s) for _ in range(count)]
    return sorted(start + rng.uniform(0.0, 0.05) for start in starts)


def _scaled(ladder: Sequence[tuple[float, float]], factor: float) -> list[tuple[float, float]]:
    return [(rate * factor, seconds) for rate, seconds in ladder]


def _w(name: str, about: str, shape: Shape, ladder: Sequence[tuple[float, float]] = W1_LADDER) -> Workload:
    return Workload(name, _grouped(shape, ladder), about=about)


WORKLOADS: dict[str, Workload] = {
    each.name: each
    for each in (
        _w("w1", "150 groups x 5 prompts, 6,000 + 1,200 in, 1,000 out", Shape()),
        _w("w1z", "W1, groups by Zipf 1.0", Shape(zipf=1.0)),
        _w("w1zx", "W1, Zipf 1.0, rates x 1.5", Shape(zipf=1.0), _scaled(W1_LADDER, 1.5)),
        _w("w1o", "W1 with 300 groups: prefixes do not all fit", Shape(groups=300)),
        _w("w1oz", "300 groups, Zipf 0.8", Shape(groups=300, zipf=0.8)),
        _w("w1p", "W1, output 100, rates x 2", Shape(output_tokens=100), _scaled(W1_LADDER, 2.0)),
    )
}
