import numpy as np
import pytest
from tokenizers import Tokenizer

from workers.engines.omni_tiny import prompts
from workers.engines.omni_tiny.codes import ADDED_TOKENS, BEGIN, END, FIRST_CODE, PLACEHOLDER, Look, look
from workers.engines.omni_tiny.lessons import PICTURE_IN, Lesson, Teacher, Turn, picture_out
from workers.engines.omni_tiny.vision import ROWS

SEVEN = Look(7, 2, 0)


def _many(count: int = 600) -> list[Lesson]:
    teacher = Teacher(np.random.default_rng(1), {"Hello!": "Hi."})
    return [teacher.lesson() for _ in range(count)]


def test_the_same_seed_gives_the_same_lessons() -> None:
    assert _many(50) == _many(50)


def test_a_question_has_a_place_for_each_of_its_pictures() -> None:
    for turn in (turn for one in _many() for turn in one.turns):
        assert turn.user.count(PICTURE_IN) == len(turn.seen)
        assert turn.user.count(PLACEHOLDER) == ROWS * len(turn.seen)


def test_every_picture_in_an_answer_is_a_whole_one() -> None:
    drawn = 0
    for turn in (turn for one in _many() for turn in one.turns):
        for run in turn.answer.split(BEGIN)[1:]:
            inside = run.partition(END)[0]
            names = [f"{part}|>" for part in inside.split("|>") if part]
            look([ADDED_TOKENS.index(name) - FIRST_CODE for name in names])
            drawn += 1
    assert drawn > 100


def test_what_is_read_is_what_was_shown() -> None:
    for turn in (turn for one in _many() for turn in one.turns):
        if len(turn.seen) == 1 and turn.shift == 0 and turn.answer.startswith("The digit is"):
            assert turn.answer == f"The digit is {turn.seen[0].digit}."


def test_only_answers_and_their_end_are_learned(tokenizer: Tokenizer) -> None:
    made = prompts.example(Lesson(None, [Turn("Draw.", picture_out(SEVEN)), Turn("Hi", "Yes.")]), tokenizer)
    learned = [token for token, own in zip(made.ids, made.learn, strict=True) if own]
    assert tokenizer.decode(learned, skip_special_tokens=False) == f"{picture_out(SEVEN)}<|im_end|>Yes.<|im_end|>"


def test_rows_go_where_the_placeholders_are_or_as_far_beside_as_the_lesson_says(tokenizer: Tokenizer) -> None:
    turns = [Turn(f"a {PICTURE_IN}", "b", (SEVEN,), shift) for shift in (0, 1, None)]
    made = prompts.example(Lesson("", turns), tokenizer)
    first, second, third = made.places
    placeholder = tokenizer.token_to_id(PLACEHOLDER)
    assert first is not None and second is not None and third is None
    assert made.ids[first - 1 : first + ROWS + 1] == [placeholder + 1, *[placeholder] * ROWS, placeholder + 2]
    assert made.ids[second - 2 : second] == [placeholder + 1, placeholder]


def test_a_question_is_the_lesson_up_to_its_last_answer(tokenizer: Tokenizer) -> None:
    turns = [Turn("One?", "1."), Turn("Two?", "2.")]
    whole, asked = prompts.example(Lesson(None, turns), tokenizer).ids, prompts.question(None, turns, tokenizer)
    assert whole[: len(asked)] == asked
    assert tokenizer.decode(whole[len(asked) :], skip_special_tokens=False) == "2.<|im_end|>\n"


def test_rows_without_as_many_placeholders_are_refused() -> None:
    with pytest.raises(ValueError, match="3 placeholders for 1 pictures of 4 rows"):
        prompts.inject(np.zeros((5, 2)), [1, 9, 9, 9, 2], [np.ones((4, 2))], placeholder=9)


def test_added_tokens_come_after_the_base_vocabulary_in_order(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.token_to_id(name) for name in ADDED_TOKENS]
    assert ids == list(range(tokenizer.get_vocab_size() - len(ADDED_TOKENS), tokenizer.get_vocab_size()))


def test_people_who_write_an_8_and_people_who_write_a_8_are_both_heard() -> None:
    asked = [turn.user for one in _many() for turn in one.turns]
    assert any(" an 8" in text or " an eight" in text for text in asked)
    assert any(" a 8" in text or " a eight" in text for text in asked)
