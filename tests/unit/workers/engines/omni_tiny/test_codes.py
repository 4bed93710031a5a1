import pytest

from workers.engines.omni_tiny.codes import ADDED_TOKENS, CLASSES, CODES, FIRST_CODE, Look, WrongCodes, look

EVERY_LOOK = [Look(digit, weight, slant) for digit in range(10) for weight in range(3) for slant in range(3)]


def test_every_look_survives_being_written_as_codes() -> None:
    assert [look(one.codes) for one in EVERY_LOOK] == EVERY_LOOK


def test_every_look_is_a_class_of_its_own() -> None:
    assert sorted(one.class_id for one in EVERY_LOOK) == list(range(CLASSES))


@pytest.mark.parametrize(
    ("codes", "why"),
    [
        ([], "3 codes, not 0"),
        ([7], "3 codes, not 1"),
        ([7, 10, 13, 13], "3 codes, not 4"),
        ([10, 10, 13], "code 10 at place 0 is no digit"),
        ([7, 13, 10], "code 13 at place 1 is no weight"),
        ([7, 10, 16], "code 16 at place 2 is no slant"),
        ([-1, 10, 13], "code -1 at place 0 is no digit"),
    ],
)
def test_a_run_that_is_no_picture_is_refused_with_the_reason(codes: list[int], why: str) -> None:
    with pytest.raises(WrongCodes, match=why):
        look(codes)


def test_code_tokens_follow_each_other_to_the_end_of_the_vocabulary() -> None:
    assert ADDED_TOKENS[FIRST_CODE:] == tuple(f"<|image_code_{code:02d}|>" for code in range(CODES))
    assert len(set(ADDED_TOKENS)) == len(ADDED_TOKENS)
