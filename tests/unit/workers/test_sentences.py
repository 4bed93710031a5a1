"""Where text is cut for speech, and what of it is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.sentences import LOOKAHEAD_CHARS, MOST_CHARS, Cutter, can_be_said, sentences, speakable


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello there. How are you? Fine!", ["Hello there.", "How are you?", "Fine!"]),
        ("Wait... what? He said so.", ["Wait... what?", "He said so."]),
        ("Really?! Yes.", ["Really?!", "Yes."]),
        ('He said "Stop!" and left. "Go." She went.', ['He said "Stop!" and left.', '"Go."', "She went."]),
        ("It costs 3.50 dollars. Pi is 3.14159.", ["It costs 3.50 dollars.", "Pi is 3.14159."]),
        ("Version 2.0 is out at example.com now. Get it.", ["Version 2.0 is out at example.com now.", "Get it."]),
        ("Dr. Smith met Mr. J. R. Jones. They spoke.", ["Dr. Smith met Mr. J. R. Jones.", "They spoke."]),
        ("The U.S. Army came at 5 p.m. sharp. Nobody saw.", ["The U.S. Army came at 5 p.m. sharp.", "Nobody saw."]),
        ("Fruit, e.g. apples, i.e. food. See No. 5 here.", ["Fruit, e.g. apples, i.e. food.", "See No. 5 here."]),
        ("The answer is no. Then we left.", ["The answer is no.", "Then we left."]),
        ("So do I. We all do.", ["So do I.", "We all do."]),
        ("1. First thing\n2. Second thing\n3. Third.", ["1. First thing", "2. Second thing", "3. Third."]),
        ("- milk\n- bread\n\nThat is all", ["- milk", "- bread", "That is all"]),
        ("A line that is\nwrapped in the middle. Next.", ["A line that is\nwrapped in the middle.", "Next."]),
        ("A title\n\nand a paragraph.", ["A title", "and a paragraph."]),
        ("**Bold one.** *Then more.* End", ["**Bold one.**", "*Then more.*", "End"]),
        (
            "안녕하세요. 반갑습니다! 오늘은 3.5도예요. 춥죠?",
            ["안녕하세요.", "반갑습니다!", "오늘은 3.5도예요.", "춥죠?"],
        ),
        ("먹었다.그리고 잤다.", ["먹었다.", "그리고 잤다."]),
        ("今日は。元気ですか\uff1fはい", ["今日は。", "元気ですか\uff1f", "はい"]),
        ("Great! 🎉 Next one. 🙂", ["Great!", "🎉 Next one."]),
        ("🙂", []),
        ("...", []),
        ("  \n\n ", []),
        ("", []),
    ],
)
def test_text_is_cut_where_sentences_end(text: str, pieces: list[str]) -> None:
    assert sentences(text) == pieces


def test_a_sentence_is_out_as_soon_as_the_next_one_begins() -> None:
    cutter = Cutter()
    assert cutter.feed("One is here") == []
    assert cutter.feed(". ") == []
    assert cutter.feed("T") == ["One is here."]
    assert cutter.feed("wo.\n") == ["Two."]
    assert cutter.rest() == []


def test_a_sentence_without_an_end_is_cut_at_a_pause() -> None:
    text = "and so it went on and on, " * 40
    pieces = sentences(text)
    assert all(len(piece) <= MOST_CHARS for piece in pieces)
    assert all(piece.endswith(",") for piece in pieces)
    assert " ".join(pieces) == text.strip()


def test_text_without_any_pause_is_cut_all_the_same() -> None:
    assert [len(piece) for piece in sentences("가" * 700)] == [300, 300, 100]


PROSE = st.lists(
    st.sampled_from(
        ["Hi", " ", ". ", ".", "! ", "? ", "\n", "3.5", "Dr. ", "word ", "안녕", "다. ", "🙂", "**", ", ", "J. ", "a"]
    ),
    max_size=120,
).map("".join)


@given(PROSE, st.integers(1, 7))
def test_how_text_is_chopped_up_makes_no_difference(text: str, size: int) -> None:
    cutter = Cutter()
    pieces = [piece for at in range(0, len(text), size) for piece in cutter.feed(text[at : at + size])]
    assert pieces + cutter.rest() == sentences(text)


@given(PROSE)
def test_nothing_that_can_be_said_is_lost_and_no_piece_is_without_words(text: str) -> None:
    pieces = sentences(text)
    assert all(can_be_said(piece) and len(piece) <= MOST_CHARS + LOOKAHEAD_CHARS for piece in pieces)
    assert [char for piece in pieces for char in piece if char.isalnum()] == [char for char in text if char.isalnum()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Bold** and *soft* and `code`", "Bold and soft and code"),
        ("**굵은**글씨", "굵은글씨"),
        ("# Title\n\n- one\n- two", "Title\none\ntwo"),
        ("See [the page](https://a.b/c?d=e) now", "See the page now"),
        ("2 * 3 is 6, snake_case stays", "2 * 3 is 6, snake_case stays"),
        ("Party 🎉🎉👩‍👩‍👧 time 🇰🇷 at 20°C", "Party time at 20°C"),
        ("```python\nx = 1\n```", "x = 1"),
        ("🙂 ✨", ""),
    ],
)
def test_only_words_are_said(text: str, said: str) -> None:
    assert speakable(text) == said
