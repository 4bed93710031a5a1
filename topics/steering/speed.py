"""How fast a worker is, learned from its own steps: prefill tokens/s, and what one more sequence adds to a step.

Least squares on seconds = base + prefill / R + s * sequences, with exponential forgetting. Errors count in proportion
to the step, because that is how they come: a step of 500 ms is off by 25 as one of 40 is by 2. What the steps cannot
tell apart (always as many sequences, never a prompt) keeps the proportions of the prior, at the height measured.
Pure arithmetic on twelve sums; a step costs a few microseconds.
"""

from collections.abc import Sequence

import msgspec

# A step that takes longer than so many times what is expected counts as that many: a machine that was suspended for a
# minute must not be remembered for an hour, one that is stopped half of the time must.
OUTLIER = 8.0
# The estimate is never further from the prior than this factor, whatever was measured.
MOST_OFF = 100.0
# What a step is expected to take is worked out anew after each of so many steps, then once in so many.
REFRESH_STEPS = 16


class Speed(msgspec.Struct, frozen=True):
    prefill_tokens_per_s: float = 15_928.0
    step_per_sequence_s: float = 0.000_22
    step_base_s: float = 0.025


class SpeedLearner:
    """One worker's speed. After `half_life` more steps, one counts half; the prior counts as `prior_weight` steps.

    Inside, the three coefficients are multiples of the prior's: 1, 1, 1 is the prior itself. `height` is what all three
    would be if they were the same.
    """

    def __init__(self, prior: Speed, half_life: float = 500.0, prior_weight: float = 0.01) -> None:
        self._prior = prior
        self._keep = 0.5 ** (1.0 / half_life)
        self._prior_weight = prior_weight
        self._moments = [[0.0] * 3 for _ in range(3)]
        self._targets = [0.0] * 3
        self._multiples = [1.0] * 3
        self._height = 1.0
        self._steps = 0

    def step(self, seconds: float, prefill_tokens: int, sequences: int) -> None:
        """One engine step was measured: its length, the prompt tokens it computed, the sequences in it."""
        prior = self._prior
        parts = (
            prior.step_base_s,
            prefill_tokens / prior.prefill_tokens_per_s,
            sequences * prior.step_per_sequence_s,
        )
        expected_s = sum(multiple * part for multiple, part in zip(self._multiples, parts, strict=True))
        if self._steps >= REFRESH_STEPS:
            seconds = min(seconds, OUTLIER * expected_s)
        # Of what the step would take on a worker like this one at the prior's height: steps from before a worker became
        # slow must not weigh more than those after it.
        shape_s = expected_s / self._height
        shares, took = [part / shape_s for part in parts], seconds / shape_s
        keep, targets = self._keep, self._targets
        for index, (row, share) in enumerate(zip(self._moments, shares, strict=True)):
            row[0] = keep * row[0] + share * shares[0]
            row[1] = keep * row[1] + share * shares[1]
            row[2] = keep * row[2] + share * shares[2]
            targets[index] = keep * targets[index] + share * took
        self._steps += 1
        if self._steps % REFRESH_STEPS == 0 or self._steps < REFRESH_STEPS:
            self._refresh()

    def speed(self) -> Speed:
        """The estimate now."""
        self._refresh()
        base, prefill, per_sequence = self._multiples
        prior = self._prior
        return Speed(
            prior.prefill_tokens_per_s / prefill,
            prior.step_per_sequence_s * per_sequence,
            prior.step_base_s * base,
        )

    def _refresh(self) -> None:
        weight = self._prior_weight
        height = (sum(self._targets) + weight) / (sum(map(sum, self._moments)) + weight)
        moments = [[each + weight * (i == j) for j, each in enumerate(row)] for i, row in enumerate(self._moments)]
        self._multiples = bounded(moments, [target + weight * height for target in self._targets])
        self._height = max(height, 1 / MOST_OFF)


def bounded(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """Least squares by its normal equations, each unknown within MOST_OFF.

    One that would lie outside is put on its bound and the others are found again: cutting it off afterwards would leave
    in the others what they had to make up for.
    """
    fixed: dict[int, float] = {}
    while True:
        free = [index for index in range(len(vector)) if index not in fixed]
        rest = [vector[i] - sum(matrix[i][j] * value for j, value in fixed.items()) for i in free]
        found = dict(zip(free, _solve([[matrix[i][j] for j in free] for i in free], rest), strict=True))
        outside = {index: min(max(value, 1 / MOST_OFF), MOST_OFF) for index, value in found.items()}
        worst = max(found, key=lambda index: abs(found[index] - outside[index]), default=None)
        if worst is None or found[worst] == outside[worst]:
            return [value for _, value in sorted((fixed | found).items())]
        fixed[worst] = outside[worst]


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gauss; the prior on the diagonal keeps every pivot above zero."""
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for at, pivot in enumerate(rows):
        for row in rows[at + 1 :]:
            factor = row[at] / pivot[at]
            for column in range(at, len(row)):
                row[column] -= factor * pivot[column]
    solved = [0.0] * len(rows)
    for at in reversed(range(len(rows))):
        known = sum(rows[at][column] * solved[column] for column in range(at + 1, len(rows)))
        solved[at] = (rows[at][-1] - known) / rows[at][at]
    return solved
