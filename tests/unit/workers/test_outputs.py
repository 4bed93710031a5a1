"""Which parts of an answer go to decoders, told from its tokens."""

import pytest

from schemas.events import FinishReason, TokenLogprob
from schemas.media import ImageOptions, Output, SpeechOptions
from workers.engine import Delta
from workers.outputs import Malformed, Piece, Watch

BEGIN, END, FIRST, LAST = 100, 101, 110, 119
PICTURE = Output("m/image", ImageOptions(), BEGIN, END, FIRST, LAST)
SPEECH = Output("m/audio", SpeechOptions())
SENTENCES = Output("m/audio", SpeechOptions(chunked=True))


def delta(*ids: int, text: str = "", index: int = 0, reason: FinishReason | None = None) -> Delta:
    return Delta(index, text, list(ids), reason)


def pieces(watch: Watch, *deltas: Delta) -> list[Piece]:
    return [piece for one in deltas for piece in watch.take(one)[1]]


def test_a_run_of_codes_becomes_a_piece_when_it_ends() -> None:
    watch = Watch([PICTURE])
    assert pieces(watch, delta(1, text="Here:"), delta(BEGIN), delta(112), delta(110)) == []
    assert pieces(watch, delta(END)) == [Piece(0, 0, PICTURE, codes=[2, 0])]
    assert pieces(watch, delta(2, text=" so.", reason="stop")) == []


def test_several_runs_in_one_step_are_numbered_in_order() -> None:
    watch = Watch([PICTURE])
    made = pieces(watch, delta(1, BEGIN, 110, END, 2, BEGIN, 111, END, reason="stop"))
    assert [(one.number, one.codes, one.kind) for one in made] == [(0, [0], "image"), (1, [1], "image")]


def test_choices_are_watched_and_numbered_each_for_itself() -> None:
    watch = Watch([PICTURE])
    made = pieces(watch, delta(BEGIN, 110, index=1), delta(BEGIN, 111), delta(END, index=1), delta(END))
    assert [(one.index, one.number, one.codes) for one in made] == [(1, 0, [0]), (0, 0, [1])]


def test_text_and_all_token_ids_pass_unchanged() -> None:
    shown, _ = Watch([PICTURE]).take(given := delta(1, BEGIN, 110, END, text="Here"))
    assert shown == given


def test_log_probabilities_are_those_of_text_only() -> None:
    rows = [TokenLogprob(str(number), b"", -1.0) for number in range(5)]
    given = Delta(0, "ab", [1, BEGIN, 110, END, 2, 9], "stop", rows)  # the last id ended the answer: it has none
    shown, _ = Watch([PICTURE]).take(given)
    assert [one.token for one in shown.logprobs or []] == ["0", "4"]


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (delta(BEGIN, 110, reason="length"), "length limit"),
        (delta(BEGIN, 110, 7), "something else"),
        (delta(BEGIN, BEGIN), "something else"),
        (delta(BEGIN, 110, 2, reason="stop"), "something else"),
        (delta(BEGIN, reason="stop"), "stopped in the middle"),
        (delta(BEGIN, END), "without content"),
        (delta(115), "outside of one"),
    ],
)
def test_what_no_decoder_could_take_is_a_failure_that_says_so(last: Delta, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        Watch([PICTURE]).take(last)


def test_speech_is_asked_for_once_with_the_whole_text() -> None:
    watch = Watch([SPEECH])
    assert pieces(watch, delta(1, text="One. "), delta(2, text="**Two.** 🙂")) == []
    assert pieces(watch, delta(3, reason="stop")) == [Piece(0, 0, SPEECH, text="One. Two.")]


def test_chunked_speech_is_asked_for_sentence_by_sentence() -> None:
    watch = Watch([SENTENCES])
    made = pieces(watch, delta(1, text="One. "), delta(2, text="Two. "), delta(3, text="Three", reason="length"))
    assert [(one.number, one.text) for one in made] == [(0, "One."), (1, "Two."), (2, "Three")]
    assert {one.kind for one in made} == {"audio"}


def test_what_cannot_be_said_is_not_asked_for() -> None:
    assert pieces(Watch([SPEECH]), delta(1, text="🙂 ...", reason="stop")) == []
    assert pieces(Watch([SENTENCES]), delta(1, text="🙂 ...", reason="stop")) == []


def test_pictures_and_speech_of_one_answer_share_their_numbers() -> None:
    watch = Watch([PICTURE, SENTENCES])
    made = pieces(watch, delta(1, text="Look. "), delta(BEGIN, 110, END, 2, text="That is it.", reason="stop"))
    assert [(one.number, one.kind) for one in made] == [(0, "image"), (1, "audio"), (2, "audio")]


def test_an_answer_without_outputs_of_a_kind_is_left_alone() -> None:
    assert pieces(Watch([SPEECH]), delta(BEGIN, 110, END, text="A")) == []
    assert pieces(Watch([PICTURE]), delta(1, text="Words.", reason="stop")) == []
