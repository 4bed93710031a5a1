from dataclasses import replace

import numpy as np
import pytest
import torch

from workers.engines.omni_tiny import dit
from workers.engines.omni_tiny.codes import Look, WrongCodes
from workers.engines.omni_tiny.dit import DigitsDit, DrawAsk, DrawingStopped

SEVEN = DrawAsk(Look(7).codes, steps=4, seed=1, width=32, height=32)


@pytest.fixture(scope="module")
def painter() -> DigitsDit:
    torch.manual_seed(3)
    model = dit.network()
    for parameter in model.parameters():  # as made, its last layer is zero and every picture the noise itself
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    return DigitsDit(model)


def _draw(painter: DigitsDit, *asks: DrawAsk) -> list[np.ndarray]:
    return painter.draw(asks, lambda *_: None, lambda: False)


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    """Equal but for rounding: a bigger batch may add up in another order."""
    return one.shape == two.shape and bool(np.abs(one.astype(int) - two.astype(int)).max() <= 1)


def test_a_picture_is_rgb_of_the_size_asked_for(painter: DigitsDit) -> None:
    (picture,) = _draw(painter, replace(SEVEN, width=64, height=48))
    assert (picture.shape, picture.dtype) == ((48, 64, 3), np.uint8)


def test_the_seed_decides_the_picture_whatever_else_is_in_the_batch(painter: DigitsDit) -> None:
    (alone,) = _draw(painter, SEVEN)
    other, again = _draw(painter, replace(SEVEN, codes=Look(2).codes, seed=9), SEVEN)
    assert _same(alone, again)
    assert not _same(alone, other)
    assert not _same(alone, _draw(painter, replace(SEVEN, seed=2))[0])


def test_without_a_seed_every_drawing_differs(painter: DigitsDit) -> None:
    free = replace(SEVEN, seed=None)
    one, two = _draw(painter, free, free)
    assert not _same(one, two)


@pytest.mark.parametrize("change", [{"codes": Look(3).codes}, {"steps": 9}, {"guidance": 6.0}])
def test_codes_steps_and_guidance_each_change_the_picture(painter: DigitsDit, change: dict) -> None:
    assert not _same(_draw(painter, SEVEN)[0], _draw(painter, replace(SEVEN, **change))[0])


def test_mixed_steps_are_drawn_in_the_order_asked_and_as_if_alone(painter: DigitsDit) -> None:
    asks = [replace(SEVEN, steps=6), SEVEN, replace(SEVEN, steps=6, seed=4), replace(SEVEN, guidance=1.0)]
    together = _draw(painter, *asks)
    assert all(_same(one, _draw(painter, ask)[0]) for one, ask in zip(together, asks, strict=True))


def test_every_step_is_reported(painter: DigitsDit) -> None:
    heard: list[tuple[int, int]] = []
    painter.draw([SEVEN, replace(SEVEN, steps=2)], lambda step, steps: heard.append((step, steps)), lambda: False)
    assert heard == [(step, 6) for step in range(1, 7)]


def test_it_stops_between_two_steps(painter: DigitsDit) -> None:
    heard: list[int] = []
    with pytest.raises(DrawingStopped, match="before step 3 of 4"):
        painter.draw([SEVEN], lambda step, _: heard.append(step), lambda: len(heard) == 2)
    assert heard == [1, 2]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"steps": 0}, "steps"),
        ({"guidance": -1.0}, "guidance"),
        ({"guidance": float("nan")}, "guidance"),
        ({"width": 4}, "8 x 8"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_first_step(painter: DigitsDit, change: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        _draw(painter, SEVEN, replace(SEVEN, **change))


def test_codes_that_are_no_picture_are_refused(painter: DigitsDit) -> None:
    with pytest.raises(WrongCodes):
        _draw(painter, replace(SEVEN, codes=[7, 7, 7]))


def test_nothing_asked_is_nothing_drawn(painter: DigitsDit) -> None:
    assert _draw(painter) == []
