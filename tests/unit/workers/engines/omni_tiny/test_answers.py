import pytest

from workers.engines.omni_tiny.answers import codes_of, right_digits
from workers.engines.omni_tiny.codes import BEGIN, Look
from workers.engines.omni_tiny.lessons import picture_out


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("The digits are 3, 5 and 3.", 3),
        ("The digits are 3, 4 and 3.", 2),
        ("The digits are 5, 3 and 3.", 1),
        ("The digits are 3 and 5.", 0),
        ("The digits are 3, 5, 3 and 1.", 0),
        ("I cannot see a picture.", 0),
    ],
)
def test_digits_count_where_they_stand_and_only_in_a_list_of_the_right_length(answer: str, right: int) -> None:
    assert right_digits([3, 5, 3], answer) == right


def test_the_codes_of_an_answer_are_those_of_its_first_whole_picture() -> None:
    seven, one = Look(7, 2, 0), Look(1)
    assert codes_of(f"Here is your 7.{picture_out(seven)}{picture_out(one)}") == seven.codes
    assert codes_of(f"Here is your 7.{BEGIN}") == []
    assert codes_of("The digit is 7.") == []
