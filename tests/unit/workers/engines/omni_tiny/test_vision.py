import numpy as np
import pytest
import torch

from workers.engines.omni_tiny import data
from workers.engines.omni_tiny.vision import ROWS, WIDTH, DigitsVision, VisionModel

PICTURES = [data.to_picture(image, 40 + 7 * place, 60) for place, image in enumerate(data.split()[1].images[:9])]


@pytest.fixture(scope="module")
def vision() -> DigitsVision:
    torch.manual_seed(3)
    return DigitsVision(VisionModel())


def test_a_picture_becomes_a_few_rows_as_wide_as_an_embedding(vision: DigitsVision) -> None:
    rows = vision.encode(PICTURES)
    assert [one.shape for one in rows] == [(ROWS, WIDTH)] * len(PICTURES)
    assert {one.dtype for one in rows} == {np.dtype(np.float32)}
    assert (vision.rows_per_image, vision.width) == (ROWS, WIDTH)


def test_rows_do_not_depend_on_the_rest_of_the_batch_to_the_last_bit(vision: DigitsVision) -> None:
    together = vision.encode(PICTURES)
    for batch in ([0], [5, 0], [8, 7, 6, 5, 4, 3, 2, 1, 0]):
        for place, rows in zip(batch, vision.encode([PICTURES[place] for place in batch]), strict=True):
            assert np.array_equal(rows, together[place])


def test_rows_do_not_depend_on_the_number_of_threads(vision: DigitsVision) -> None:
    before, rows = torch.get_num_threads(), vision.encode(PICTURES)
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        assert all(np.array_equal(one, two) for one, two in zip(rows, vision.encode(PICTURES), strict=True))
    finally:
        torch.set_num_threads(before)


def test_different_pictures_have_different_rows(vision: DigitsVision) -> None:
    rows = vision.encode(PICTURES)
    assert all(np.abs(rows[0] - other).max() > 1e-3 for other in rows[1:])


def test_no_pictures_give_no_rows(vision: DigitsVision) -> None:
    assert vision.encode([]) == []


@pytest.mark.parametrize(
    "picture",
    [np.zeros((8, 8), np.uint8), np.zeros((8, 8, 4), np.uint8), np.zeros((8, 8, 3)), np.zeros((0, 8, 3), np.uint8)],
)
def test_what_is_no_rgb_picture_is_refused(vision: DigitsVision, picture: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected RGB"):
        vision.encode([picture])
