"""Makers of arrivals: groups with a common prefix, conversations, closed loops."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

BLOCK = 64
Ladder = Sequence[tuple[float, float]]  # (requests/s, seconds)
Rungs = Callable[[int], Iterator["Rung"]]


class Turn(msgspec.Struct):
    """One request: the keys of every full block of prompt and output, so that a cached answer can be matched too."""

    at: float  # seconds after the rung's start, or after the end of the turn that it follows
    keys: Sequence[int]
    prompt_tokens: int
    output_tokens: int
    session: str = ""
    follow: "Turn | None" = None


class Rung(msgspec.Struct):
    rate: float  # requests/s, or the number of clients of a closed loop
    turns: list[Turn]
    counted: bool = True


class Shape(msgspec.Struct, frozen=True):
    """Groups with a common prefix, a few questions each."""

    groups: int = 150
    questions: int = 5
    shared_tokens: int = 6_000
    question_tokens: int = 1_200
    output_tokens: int = 1_000
    zipf: float = 0.0
    unique_questions: bool = False  # no two requests ask the same


class Chat(msgspec.Struct, frozen=True):
    """Conversations of a few tenants; every turn's prompt is the whole conversation so far."""

    tenants: int = 8
    shared_tokens: int = 2_000
    turns: float = 5.0  # mean, geometric
    question_tokens: float = 200.0  # mean, exponential
    answer_tokens: float = 300.0  # mean, exponential
    think_s: float = 5.0  # mean, exponential


class Keys:
    """Hands out block keys: equal numbers mean equal prefixes."""

    def __init__(self) -> None:
        self._next = 1
        self._known: dict[tuple[int, ...], list[int]] = {}

    def fresh(self, count: int) -> list[int]:
        start, self._next = self._next, self._next + count
        return list(range(start, start + count))

    def known(self, name: tuple[int, ...], count: int) -> list[int]:
        if name not in self._known:
            self._known[name] = self.fresh(count)
        return self._known[name]


def grouped(shape: Shape, ladder: Ladder, wave_s: float = 0.0) -> Rungs:
    """Open loop: Poisson arrivals, or all of each interval's within its first 50 ms."""

    def rungs(seed: int) -> Iterator[Rung]:
        rng, keys = random.Random(seed), Keys()
        weights = [1.0 / (rank + 1) ** shape.zipf for rank in range(shape.groups)]
        for number, (rate, seconds) in enumerate(ladder):
            arrivals = _waves(rng, rate, seconds, wave_s) if wave_s else _poisson(rng, rate, seconds)
            groups = rng.choices(range(shape.groups), weights, k=len(arrivals))
            turns = [_turn(keys, shape, at, group, rng) for at, group in zip(arrivals, groups, strict=True)]
            yield Rung(rate, turns, counted=number > 0)

    return rungs


def clients(shape: Shape, counts: Sequence[int], requests: int) -> Rungs:
    """Closed loop: so many clients, all at once, each at its next request the moment it is answered."""

    def rungs(seed: int) -> Iterator[Rung]:
        rng, keys = random.Random(seed), Keys()
        for count in counts:
            turns = []
            for _ in range(count):
                turn = None
                for _ in range(requests):
                    group = rng.randrange(shape.groups)
                    turn = msgspec.structs.replace(_turn(keys, shape, 0.0, group, rng), follow=turn)
                turns.append(turn)
            yield Rung(count, turns)

    return rungs


def chat(shape: Chat, ladder: Ladder) -> Rungs:
    """Conversations start by Poisson, at the rung's rate of requests over the mean number of turns."""

    def rungs(seed: int) -> Iterator[Rung]:
        rng, keys = random.Random(seed), Keys()
        for number, (rate, seconds) in enumerate(ladder):
            starts = _poisson(rng, rate, seconds)
            turns = [_conversation(keys, shape, at, f"{number}-{index}", rng) for index, at in enumerate(starts)]
            yield Rung(rate * shape.turns, turns, counted=number > 0)

    return rungs


def _turn(keys: Keys, shape: Shape, at: float, group: int, rng: random.Random) -> Turn:
    tokens = shape.shared_tokens + shape.question_tokens
    shared = keys.known((group,), shape.shared_tokens // BLOCK)
    own = tokens // BLOCK - len(shared)
    question = keys.fresh(own) if shape.unique_questions else keys.known((group, rng.randrange(shape.questions)), own)
    answer = keys.fresh((tokens + shape.output_tokens) // BLOCK - len(shared) - own)
    return Turn(at, [*shared, *question, *answer], tokens, shape.output_tokens, f"g{group}")


def _conversation(keys: Keys, shape: Chat, at: float, session: str, rng: random.Random) -> Turn:
    shared = keys.known((rng.randrange(shape.tenants),), shape.shared_tokens // BLOCK)
    sizes = [_sizes(shape, rng)]
    while rng.random() > 1.0 / shape.turns and len(sizes) < 20:
        sizes.append(_sizes(shape, rng))
    total = shape.shared_tokens + sum(question + answer for question, answer in sizes)
    chain = [*shared, *keys.fresh(total // BLOCK - len(shared))]
    turns, tokens = [], shape.shared_tokens
    for question, answer in sizes:
        prompt, tokens = tokens + question, tokens + question + answer
        turns.append(Turn(rng.expovariate(1.0 / shape.think_s), chain[: tokens // BLOCK], prompt, answer, session))
    for turn, follow in itertools.pairwise(turns):
        turn.follow = follow
    turns[0].at = at
    return turns[0]


def _sizes(shape: Chat, rng: random.Random) -> tuple[int, int]:
    question = min(2_000, 10 + int(rng.expovariate(1.0 / shape.question_tokens)))
    return question, min(2_000, 10 + int(rng.expovariate(1.0 / shape.answer_tokens)))


def _poisson(rng: random.Random, rate: float, seconds: float) -> list[float]:
    """As many arrivals as the rate says, at independent uniform times: a Poisson process given its count."""
    return sorted(rng.uniform(0.0, seconds) for _ in range(round(rate * seconds)))


def _waves(rng: random.Random, rate: float, seconds: float, wave_s: float) -> list[float]:
    starts = [wave_s * int(rng.uniform(0.0, seconds) / wave_s) for _ in range(round(rate * seconds))]
    return sorted(start + rng.uniform(0.0, 0.05) for start in starts)
