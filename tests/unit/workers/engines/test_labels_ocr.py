from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra import tesseract
from infra.model_files import ModelMissing
from schemas.media import ArtifactKind
from workers.encoder import Clip, Encoded, MediaFault, Picture, Sound
from workers.engines import labels_ocr
from workers.engines.efficientnet import Label, Labeller
from workers.engines.labels_ocr import LabelsOcrEngine, Seen, of_clip, of_picture

TEXT: ArtifactKind = "text"
CUP, CAT = Label("cup", 0.94), Label("tabby", 0.4)


def grey(level: int, side: int = 16) -> Picture:
    return Picture(np.full((side, side, 3), level, np.uint8))


class Grey:
    """Sees how light a picture is, and reads that as well; remembers what it was asked to read."""

    def __init__(self) -> None:
        self.read_levels: list[int] = []
        self.forwards: list[int] = []

    def label(self, pictures: list[Any], top: int) -> list[list[Label]]:
        self.forwards.append(len(pictures))
        return [[Label(f"grey {one[0, 0, 0] // 100}", 0.9), Label("noise", 0.05)] for one in pictures]

    def read(self, rgb: Any) -> list[str]:
        self.read_levels.append(int(rgb[0, 0, 0]))
        return [f"level {rgb[0, 0, 0]}"] if rgb[0, 0, 0] else []


@pytest.fixture
def eyes() -> Grey:
    return Grey()


@pytest.fixture
def engine(eyes: Grey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabelsOcrEngine:
    monkeypatch.setattr(Labeller, "load", lambda folder: eyes)
    monkeypatch.setattr(tesseract, "find", lambda: "tesseract")
    monkeypatch.setattr(labels_ocr, "Reader", lambda program: eyes)
    made = LabelsOcrEngine(tmp_path)
    made.load(lambda line: None)
    eyes.forwards.clear()
    return made


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Seen([CUP], ""), "The picture shows: cup (94%)."),
        (Seen([CUP, CAT], "3\n커피"), 'The picture shows: cup (94%), tabby (40%).\nText in the picture: "3\n커피"'),
        (Seen([Label("bobsled", 0.19)], ""), "The picture may show: bobsled (19%)."),
        (Seen([], ""), "The picture shows nothing that is known for sure."),
    ],
)  # fmt: skip
def test_the_words_for_a_picture(seen: Seen, words: str) -> None:
    assert of_picture(seen) == words


def test_long_writing_leaves_room_for_the_question() -> None:
    assert len(of_picture(Seen([CUP], "word " * 1000))) < labels_ocr.TEXT_CHARS + 100


def test_the_words_for_a_video_say_once_what_stays_the_same() -> None:
    frames = [Seen([CUP], ""), Seen([CUP], ""), Seen([CUP], "SALE"), Seen([], "")]
    assert of_clip(frames, [0.0, 0.5, 1.0, 1.5]) == (
        'The video shows:\nAt 0.0 s: cup.\nAt 1.0 s: cup, with the text "SALE".\nAt 1.5 s: something unknown.'
    )


def test_pictures_and_clips_of_a_batch_share_forwards_and_keep_their_order(engine: LabelsOcrEngine, eyes: Grey) -> None:
    clip = Clip([grey(0), grey(250)], [0.0, 2.0])
    found = engine.encode([grey(150), clip, grey(0)])
    assert eyes.forwards == [4]
    assert found == [
        Encoded(TEXT, text='The picture shows: grey 1 (90%).\nText in the picture: "level 150"'),
        Encoded(
            TEXT,
            text='The video shows:\nAt 0.0 s: grey 0.\nAt 2.0 s: grey 2, with the text "level 250".',
            duration_s=2.0,
        ),
        Encoded(TEXT, text="The picture shows: grey 0 (90%)."),
    ]


def test_many_frames_go_through_the_network_in_portions(engine: LabelsOcrEngine, eyes: Grey) -> None:
    engine.encode([Clip([grey(9)] * 20, [float(at) for at in range(20)])])
    assert eyes.forwards == [8, 8, 4]


def test_a_frame_that_looks_like_the_one_before_is_not_read_again(engine: LabelsOcrEngine, eyes: Grey) -> None:
    engine.encode([Clip([grey(100), grey(101), grey(103), grey(200)], [0.0, 1.0, 2.0, 3.0])])
    assert eyes.read_levels == [100, 200]


def test_a_sound_is_none_of_its_business(engine: LabelsOcrEngine) -> None:
    fault, _ = engine.encode([Sound(np.zeros(5, np.float32)), grey(0)])
    assert isinstance(fault, MediaFault) and fault.code == "media_type_unsupported"


def test_a_picture_that_cannot_be_read_fails_alone(
    engine: LabelsOcrEngine, eyes: Grey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(rgb: Any) -> list[str]:
        if rgb[0, 0, 0] == 7:
            raise tesseract.Failed("took longer")
        return []

    monkeypatch.setattr(eyes, "read", read)
    fault, good = engine.encode([grey(7), grey(0)])
    assert isinstance(fault, MediaFault) and fault.code == "media_unreadable"
    assert isinstance(good, Encoded)


def test_without_tesseract_it_does_not_start_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Labeller, "load", lambda folder: Grey())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelMissing, match=r"not installed; install it: apt-get install tesseract-ocr"):
        LabelsOcrEngine(tmp_path).load(lambda line: None)
