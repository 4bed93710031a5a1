from collections import Counter

import numpy as np
import pytest

from workers.engines.omni_tiny import augment, data

TRAINING, HELD_OUT = data.split()


def test_the_split_is_the_same_every_time_and_shares_no_picture() -> None:
    again = data.split()[1]
    assert np.array_equal(again.images, HELD_OUT.images)
    assert again.looks == HELD_OUT.looks
    seen = {one.tobytes() for one in TRAINING.images}
    assert not any(one.tobytes() in seen for one in HELD_OUT.images)


def test_a_fifth_of_every_class_is_held_out() -> None:
    all_of, held = Counter(TRAINING.labels) + Counter(HELD_OUT.labels), Counter(HELD_OUT.labels)
    assert all(abs(held[digit] / all_of[digit] - 0.2) < 0.005 for digit in range(10))


def test_weights_and_slants_are_about_a_third_each() -> None:
    for kind in ("weight", "slant"):
        shares = Counter(getattr(one, kind) for one in TRAINING.looks)
        assert all(abs(shares[value] / len(TRAINING.looks) - 1 / 3) < 0.02 for value in range(3))


def test_bold_has_more_ink_and_right_leans_right() -> None:
    ink, lean = data.ink(TRAINING.images), data.lean(TRAINING.images)
    weights, slants = (np.array([getattr(one, kind) for one in TRAINING.looks]) for kind in ("weight", "slant"))
    assert ink[weights == 2].mean() > ink[weights == 0].mean() * 1.2
    stroke = np.zeros((1, 8, 8), np.float32)
    stroke[0, range(8), range(7, -1, -1)] = 1  # from lower left to upper right: leans right
    assert data.lean(stroke)[0] > 0.9
    assert lean[slants == 2].mean() > 0 > lean[slants == 0].mean()


@pytest.mark.parametrize("size", [(96, 96), (256, 256), (300, 200), (120, 400)])
def test_light_on_dark_dark_on_light_and_colours_are_the_same_picture(size: tuple[int, int]) -> None:
    picture = data.to_picture(HELD_OUT.images[3], *size)
    assert picture.shape == (size[1], size[0], 3)
    plain = data.to_8x8(picture)
    blue_on_cream = np.array([250, 240, 200]) + (np.array([10, 20, 90]) - np.array([250, 240, 200])) * (picture / 255)
    assert np.array_equal(data.to_8x8(255 - picture), plain)
    assert np.abs(data.to_8x8(blue_on_cream.astype(np.uint8)) - plain).max() < 0.05


def test_margins_change_nothing() -> None:
    picture = data.to_picture(HELD_OUT.images[3], 128, 128)
    framed = np.pad(picture, ((40, 90), (10, 70), (0, 0)))
    assert np.abs(data.to_8x8(framed) - data.to_8x8(picture)).max() < 0.05


def test_an_empty_sheet_is_empty() -> None:
    assert not data.to_8x8(np.full((50, 40, 3), 200, np.uint8)).any()
    assert not data.to_8x8(np.full((1, 1, 3), 7, np.uint8)).any()


def test_a_speck_is_a_picture_and_not_an_error() -> None:
    sheet = np.zeros((30, 30, 3), np.uint8)
    sheet[12, 17] = 255
    assert data.to_8x8(sheet).shape == (8, 8)


def test_variants_are_8x8_between_paper_and_ink() -> None:
    chance = np.random.default_rng(0)
    views = np.stack([augment.variant(TRAINING.images[0], chance) for _ in range(30)])
    assert views.shape == (30, 8, 8)
    assert views.min() >= 0
    assert views.max() == pytest.approx(1)
    assert np.abs(views - views[0]).max() > 0.2
