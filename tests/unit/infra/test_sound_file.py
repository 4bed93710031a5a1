"""A file that is sent while it is made is the same file, to its last sample."""

import threading

import numpy as np
import pytest

from infra.sound_file import STREAMED, SoundPieces
from schemas.media import PCM16_RATE_HZ, AudioFormat
from tests.sounds import DELAY_SAMPLES, FRAME_SAMPLES, excess, heard, pcm16
from tests.unit.workers.media.recordings import tone

ENCODED = sorted(STREAMED - {"pcm16"})
SPEECH = tone(2.4, PCM16_RATE_HZ)
CUTS = (21_600, 21_900, 22_001)  # 0.9 s, then less than a frame, then an odd number of samples


def pieces_of(audio_format: AudioFormat, *sentences: bytes) -> list[bytes]:
    """What is ready after each sentence, and at the end."""
    pieces = SoundPieces(audio_format)
    return [*(pieces.add(one) for one in sentences), pieces.end()]


@pytest.mark.parametrize("audio_format", ENCODED)
def test_the_pieces_are_the_file_that_one_sentence_would_have_been(audio_format: AudioFormat) -> None:
    sentences = [pcm16(one) for one in np.split(SPEECH, CUTS)]
    assert b"".join(pieces_of(audio_format, *sentences)) == b"".join(pieces_of(audio_format, pcm16(SPEECH)))


@pytest.mark.parametrize("audio_format", ENCODED)
def test_the_file_is_as_long_as_its_sentences_and_sounds_like_them(audio_format: AudioFormat) -> None:
    file = b"".join(pieces_of(audio_format, *(pcm16(one) for one in np.split(SPEECH, CUTS))))
    assert 0 <= excess(file, audio_format, len(SPEECH)) <= FRAME_SAMPLES[audio_format]
    sound = heard(file, audio_format)[DELAY_SAMPLES[audio_format] :][: len(SPEECH)]
    assert np.corrcoef(sound, SPEECH)[0, 1] > 0.97


@pytest.mark.parametrize("audio_format", ENCODED)
def test_a_sentence_is_heard_before_the_next_one_is_there_but_for_its_last_moment(audio_format: AudioFormat) -> None:
    first = pieces_of(audio_format, pcm16(SPEECH[: CUTS[0]]))[0]
    assert len(heard(first, audio_format)) >= CUTS[0] - 0.22 * PCM16_RATE_HZ


@pytest.mark.parametrize("audio_format", ENCODED)
@pytest.mark.parametrize("samples", [240, 4_800])
def test_one_short_sound_is_a_file_too(audio_format: AudioFormat, samples: int) -> None:
    file = b"".join(pieces_of(audio_format, pcm16(SPEECH[:samples])))
    assert 0 <= excess(file, audio_format, samples) <= FRAME_SAMPLES[audio_format]


@pytest.mark.parametrize("audio_format", ENCODED)
def test_no_sound_is_at_most_a_header(audio_format: AudioFormat) -> None:
    assert len(b"".join(pieces_of(audio_format, b"", b""))) < 200


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        SoundPieces("mp3").add(b"odd")


def test_after_closing_nothing_comes_and_closing_waits_for_what_is_at_work() -> None:
    pieces = SoundPieces("mp3")
    assert pieces.add(pcm16(SPEECH))
    made: list[bytes] = []
    long = threading.Thread(target=lambda: made.append(pieces.add(pcm16(SPEECH) * 10)))
    long.start()
    pieces.close()
    long.join(10)
    assert made[0] == b"" or len(made[0]) > 10_000  # before it began, or after it was done: never in between
    assert pieces.add(pcm16(SPEECH)) == pieces.end() == b""
    pieces.close()
