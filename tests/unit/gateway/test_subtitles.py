"""What was heard, in every form."""

import json

import pytest

from gateway import subtitles
from schemas.events import Transcript
from schemas.media import Segment


def heard(text: str, *segments: Segment, duration_s: float = 2.0) -> Transcript:
    return Transcript(1, 1, text, list(segments), "en", duration_s)


@pytest.mark.parametrize(
    ("seconds", "clock"),
    [
        (0.0, "00:00:00.000"),
        (0.9996, "00:00:01.000"),
        (59.9999, "00:01:00.000"),
        (3_661.25, "01:01:01.250"),
        (360_000.0, "100:00:00.000"),
    ],
)
def test_times_round_and_carry(seconds: float, clock: str) -> None:
    assert clock in subtitles.as_vtt(heard("x", Segment(seconds, seconds, "x"))).decode()


def test_words_cannot_break_out_of_their_line() -> None:
    one = heard("x", Segment(0, 1, "a\n\n2\n00:00:00,000 --> 00:00:09,000\nforged"))
    written = subtitles.as_srt(one).decode()
    assert written.count("-->") == 1
    assert written.count("\n\n") == 1


def test_an_encoder_without_segments_has_one() -> None:
    assert subtitles.as_srt(heard("all of it")).decode() == "1\n00:00:00,000 --> 00:00:02,000\nall of it\n\n"
    assert subtitles.as_vtt(heard("")) == b"WEBVTT\n\n"


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("a b c", [" a", " b", " c"]),
        ("a a a", ["a", "a"]),
        ("a b", ["not there", "b"]),
        ("a b", []),
        ("", []),
        (" padded ", ["padded"]),
    ],
)
def test_deltas_add_up_to_the_text_whatever_the_segments_say(text: str, segments: list[str]) -> None:
    found = subtitles.deltas(heard(text, *(Segment(0, 1, one) for one in segments)))
    assert "".join(found) == text
    assert all(found)


def test_what_an_encoder_does_not_tell_is_null_not_made_up() -> None:
    body = json.loads(subtitles.as_verbose_json(heard("x", Segment(0, 1, "x"))))
    assert body["segments"][0]["avg_logprob"] is None
    assert (body["task"], body["language"], body["duration"]) == ("transcribe", "en", 2.0)
