from pathlib import Path

import numpy as np
import pytest

from infra.model_files import ModelMissing
from schemas.jobs import DecodeJob, Head
from schemas.media import ImageOptions, SpeechOptions
from workers.decoder import CannotDecode, Drawn, Stopped
from workers.encoder import Clip, Encoded, MediaFault, Picture, Sound
from workers.engines import digits
from workers.engines.digits import DigitsEncoder, DigitsPainter
from workers.engines.omni_tiny.dit import DrawAsk, DrawingStopped

SEVEN = [7, 11, 14]


class Eyes:
    """Three rows for a picture, all of its first pixel."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def encode(self, pictures: list[np.ndarray]) -> list[np.ndarray]:
        self.batches.append(len(pictures))
        return [np.full((3, 2), one[0, 0, 0], np.float32) for one in pictures]


class Brush:
    def __init__(self) -> None:
        self.asked: list[DrawAsk] = []

    def draw(self, asks, report, stopped):  # type: ignore[no-untyped-def]
        if stopped():
            raise DrawingStopped("before step 1")
        self.asked += asks
        return [np.full((one.height, one.width, 3), one.codes[0], np.uint8) for one in asks]


def picture(level: int) -> Picture:
    return Picture(np.full((8, 8, 3), level, np.uint8))


def job(codes: list[int], options: ImageOptions | SpeechOptions = ImageOptions(width=16, height=8)) -> DecodeJob:  # noqa: B008 - frozen
    return DecodeJob(Head("r", "m", 0.0, 0.0, "g"), "m/image", options, codes=codes)


@pytest.fixture
def eyes() -> Eyes:
    return Eyes()


@pytest.fixture
def encoder(eyes: Eyes) -> DigitsEncoder:
    made = DigitsEncoder(Path())
    made._model = eyes
    return made


@pytest.fixture
def brush() -> Brush:
    return Brush()


@pytest.fixture
def painter(brush: Brush) -> DigitsPainter:
    made = DigitsPainter(Path())
    made._model = brush
    return made


def test_all_frames_of_a_batch_go_through_one_forward_and_a_clips_rows_follow_each_other(
    encoder: DigitsEncoder, eyes: Eyes
) -> None:
    one, clip, fault = encoder.encode([picture(1), Clip([picture(2), picture(3)], [0.0, 1.0]), Sound(np.zeros(1))])
    assert eyes.batches == [3]
    assert isinstance(one, Encoded) and one.embeddings is not None and one.embeddings.tolist() == [[1, 1]] * 3
    assert isinstance(clip, Encoded) and clip.embeddings is not None
    assert clip.kind == "embeddings" and clip.embeddings.tolist() == [[2, 2]] * 3 + [[3, 3]] * 3
    assert isinstance(fault, MediaFault) and fault.code == "media_type_unsupported"


def test_jobs_are_drawn_as_asked_and_one_without_a_picture_fails_alone(painter: DigitsPainter, brush: Brush) -> None:
    options = ImageOptions(width=16, height=8, steps=5, guidance=3.0, seed=1)
    good, bad, speech, wild = painter.draw(
        [job(SEVEN, options), job([7, 7]), job([], SpeechOptions()), job(SEVEN, ImageOptions(guidance=29))],
        lambda done, total: None,
        lambda: False,
    )
    assert isinstance(good, Drawn) and good.rgb.shape == (8, 16, 3) and good.rgb[0, 0, 0] == 7
    assert brush.asked == [DrawAsk(SEVEN, 5, 3.0, 1, 16, 8)]
    assert isinstance(bad, CannotDecode) and "3 codes, not 2" in str(bad)
    assert isinstance(speech, CannotDecode)
    assert isinstance(wild, CannotDecode) and "at most 20" in str(wild)


def test_nothing_is_drawn_where_no_job_has_a_picture(painter: DigitsPainter, brush: Brush) -> None:
    assert len(painter.draw([job([])], lambda done, total: None, lambda: True)) == 1


def test_told_to_stop_it_stops(painter: DigitsPainter) -> None:
    with pytest.raises(Stopped):
        painter.draw([job(SEVEN)], lambda done, total: None, lambda: True)


@pytest.mark.parametrize("kind", [digits.DigitsEncoder, digits.DigitsPainter])
def test_missing_weights_are_an_error_that_says_how_they_are_made(
    tmp_path: Path, kind: type[DigitsEncoder] | type[DigitsPainter]
) -> None:
    with pytest.raises(ModelMissing, match="triptych train omni-tiny"):
        kind(tmp_path).load(lambda line: None)
