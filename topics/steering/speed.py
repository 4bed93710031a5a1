"""How fast a worker is, learned from its own steps: prefill tokens/s, and what one more sequence adds to a step.

Least squares on seconds = base + prefill / R + s * sequences with exponential forgetting, held near a prior until there
is enough to see. Pure arithmetic on nine sums; a step costs a microsecond.
"""

import msgspec

# Features are scaled so that all three coefficients are of the order of 10 ms.
_PREFILL_UNIT = 1_000.0
_SEQUENCES_UNIT = 50.0


class Speed(msgspec.Struct, frozen=True):
    prefill_tokens_per_s: float = 15_928.0
    step_per_sequence_s: float = 0.000_22
    step_base_s: float = 0.025


class SpeedLearner:
    """One worker's speed; `forget` is what an observation weighs after 1,000 more."""

    def __init__(self, prior: Speed, forget: float = 0.5, prior_weight: float = 0.01) -> None:
        self._prior = prior
        self._keep = forget**0.001
        self._prior_weight = prior_weight
        self._moments = [[0.0] * 3 for _ in range(3)]
        self._targets = [0.0] * 3

    def step(self, seconds: float, prefill_tokens: int, sequences: int) -> None:
        """One engine step was measured."""
        features = (1.0, prefill_tokens / _PREFILL_UNIT, sequences / _SEQUENCES_UNIT)
        keep, targets = self._keep, self._targets
        for row, feature in zip(self._moments, features, strict=True):
            row[0] = keep * row[0] + feature * features[0]
            row[1] = keep * row[1] + feature * features[1]
            row[2] = keep * row[2] + feature * features[2]
        for index, feature in enumerate(features):
            targets[index] = keep * targets[index] + feature * seconds

    def speed(self) -> Speed:
        """The estimate now; never further from the prior than a factor of 20, whatever was measured."""
        prior = self._prior
        b = _PREFILL_UNIT / prior.prefill_tokens_per_s
        c = _SEQUENCES_UNIT * prior.step_per_sequence_s
        weight = self._prior_weight
        moments = [row[:] for row in self._moments]
        moments[0][0] += weight
        moments[1][1] += weight
        moments[2][2] += weight
        targets = [
            self._targets[0] + weight * prior.step_base_s,
            self._targets[1] + weight * b,
            self._targets[2] + weight * c,
        ]
        base, per_prefill, per_sequence = _solve(moments, targets)
        return Speed(
            _PREFILL_UNIT / _within(per_prefill, b),
            _within(per_sequence, c) / _SEQUENCES_UNIT,
            _within(base, prior.step_base_s),
        )


def _within(value: float, prior: float) -> float:
    return min(prior * 20.0, max(prior / 20.0, value))


def _solve(matrix: list[list[float]], vector: list[float]) -> tuple[float, float, float]:
    """Cramer's rule; the prior keeps the matrix regular."""
    whole = _determinant(matrix)
    columns = []
    for column in range(3):
        replaced = [[vector[i] if j == column else matrix[i][j] for j in range(3)] for i in range(3)]
        columns.append(_determinant(replaced) / whole)
    return columns[0], columns[1], columns[2]


def _determinant(m: list[list[float]]) -> float:
    return (
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
        - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    )
