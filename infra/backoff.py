"""How long a part that died waits before it is started again. Pure."""

FIRST_S = 0.5
MOST_S = 30.0
# A part that served this long has recovered: its next death counts as the first.
STEADY_S = 60.0


def delay_s(deaths_in_a_row: int) -> float:
    """Seconds before the next start; doubles with every death in a row (1 or more)."""
    return float(min(MOST_S, FIRST_S * 2 ** min(deaths_in_a_row - 1, 16)))


def deaths_in_a_row(before: int, served_s: float) -> int:
    """The count after one more death of a part that had served for that long."""
    return 1 if served_s >= STEADY_S else before + 1
